/** `Clover: Fix…`: what is wrong here, or what the tests say; a diff first, and a way back. */

import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";

const SCHEME = "clover-preview";

/** What the server answers to `clover.fixTests` and `clover.fixDiagnostic` with `preview`. */
interface FixAnswer {
  status: string;
  message?: string;
  edit?: Parameters<LanguageClient["protocol2CodeConverter"]["asWorkspaceEdit"]>[0];
}

/** Shows the documents of an edit as they would be. */
export class Previews implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly texts = new Map<string, string>();
  private readonly registered = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
  private count = 0;

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.texts.get(uri.toString()) ?? "";
  }

  async show(document: vscode.TextDocument, edits: readonly vscode.TextEdit[]): Promise<vscode.Uri> {
    const name = document.uri.with({ scheme: SCHEME, query: String(++this.count) });
    this.texts.set(name.toString(), applied(document, edits));
    const title = `${vscode.workspace.asRelativePath(document.uri)} (Clover: proposed)`;
    await vscode.commands.executeCommand("vscode.diff", document.uri, name, title, { preview: true });
    return name;
  }

  async close(names: readonly vscode.Uri[]): Promise<void> {
    const wanted = new Set(names.map(String));
    for (const name of wanted) this.texts.delete(name);
    const tabs = vscode.window.tabGroups.all
      .flatMap((group) => group.tabs)
      .filter((tab) => tab.input instanceof vscode.TabInputTextDiff && wanted.has(String(tab.input.modified)));
    await vscode.window.tabGroups.close(tabs);
  }

  dispose(): void {
    this.registered.dispose();
  }
}

function applied(document: vscode.TextDocument, edits: readonly vscode.TextEdit[]): string {
  let text = document.getText();
  const later = [...edits].sort((a, b) => b.range.start.compareTo(a.range.start));
  for (const { range, newText } of later) {
    text = text.slice(0, document.offsetAt(range.start)) + newText + text.slice(document.offsetAt(range.end));
  }
  return text;
}

/** Edits that take `edit` back, computed on the documents as they are before it. */
async function inverse(edit: vscode.WorkspaceEdit): Promise<Map<vscode.TextDocument, string>> {
  const before = new Map<vscode.TextDocument, string>();
  for (const [uri] of edit.entries()) {
    const document = await vscode.workspace.openTextDocument(uri);
    before.set(document, document.getText());
  }
  return before;
}

/** Asks the server for a fix, shows it, applies it when the user says so, and offers the way back. */
export async function fix(
  client: LanguageClient,
  previews: Previews,
  command: string,
  argument: Record<string, unknown>,
): Promise<boolean> {
  const answer = await vscode.window.withProgress(
    { location: vscode.ProgressLocation.Notification, title: "Clover: looking for a fix", cancellable: true },
    (_, token) =>
      client.sendRequest<FixAnswer | null>(
        "workspace/executeCommand",
        { command, arguments: [{ ...argument, preview: true }] },
        token,
      ),
  );
  if (!answer?.edit) {
    void vscode.window.showInformationMessage(`Clover: ${answer?.message ?? "no fix was found."}`);
    return false;
  }
  const edit = await client.protocol2CodeConverter.asWorkspaceEdit(answer.edit);
  return edit ? review(edit, previews, answer.message ?? "A fix was found.") : false;
}

async function review(edit: vscode.WorkspaceEdit, previews: Previews, message: string): Promise<boolean> {
  const names: vscode.Uri[] = [];
  const versions = new Map<vscode.TextDocument, number>();
  for (const [uri, edits] of edit.entries()) {
    const document = await vscode.workspace.openTextDocument(uri);
    versions.set(document, document.version);
    names.push(await previews.show(document, edits));
  }
  const choice = await vscode.window.showInformationMessage(`Clover: ${message}`, "Apply", "Discard");
  await previews.close(names);
  if (choice !== "Apply") return false;
  if ([...versions].some(([document, version]) => document.version !== version)) {
    void vscode.window.showWarningMessage("Clover: a file changed meanwhile; nothing was applied. Ask again.");
    return false;
  }
  const before = await inverse(edit);
  if (!(await vscode.workspace.applyEdit(edit))) {
    void vscode.window.showWarningMessage("Clover: the editor refused the edit; nothing was changed.");
    return false;
  }
  const after = new Map([...before.keys()].map((document) => [document, document.version]));
  void vscode.window.showInformationMessage("Clover: the fix was applied.", "Undo").then(async (undo) => {
    if (undo === "Undo") await takeBack(before, after);
  });
  return true;
}

async function takeBack(
  before: Map<vscode.TextDocument, string>,
  after: Map<vscode.TextDocument, number>,
): Promise<void> {
  if ([...after].some(([document, version]) => document.isClosed || document.version !== version)) {
    void vscode.window.showWarningMessage("Clover: a file was edited after the fix; use the editor's own undo.");
    return;
  }
  const edit = new vscode.WorkspaceEdit();
  for (const [document, text] of before) {
    const all = new vscode.Range(new vscode.Position(0, 0), document.lineAt(document.lineCount - 1).range.end);
    edit.replace(document.uri, all, text);
  }
  await vscode.workspace.applyEdit(edit);
}
