/** Reviews what the server wants to change: a diff first, and a way back afterwards. */

import * as vscode from "vscode";

const SCHEME = "clover-preview";

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

/** The texts of the documents that an edit changes. */
async function texts(edit: vscode.WorkspaceEdit): Promise<Map<vscode.TextDocument, string>> {
  const before = new Map<vscode.TextDocument, string>();
  for (const [uri] of edit.entries()) {
    const document = await vscode.workspace.openTextDocument(uri);
    before.set(document, document.getText());
  }
  return before;
}

export interface Reviewed {
  applied: boolean;
  failureReason?: string;
}

/** Shows the difference, applies it when the user says so, and offers the way back. */
export async function review(
  edit: vscode.WorkspaceEdit,
  previews: Previews,
  label: string,
): Promise<Reviewed> {
  const names: vscode.Uri[] = [];
  const versions = new Map<vscode.TextDocument, number>();
  for (const [uri, edits] of edit.entries()) {
    const document = await vscode.workspace.openTextDocument(uri);
    versions.set(document, document.version);
    names.push(await previews.show(document, edits));
  }
  const choice = await vscode.window.showInformationMessage(`Clover: ${label}`, "Apply", "Discard");
  await previews.close(names);
  if (choice !== "Apply") return { applied: false, failureReason: "discarded" };
  if ([...versions].some(([document, version]) => document.version !== version)) {
    return { applied: false, failureReason: "a file changed meanwhile: ask again" };
  }
  const before = await texts(edit);
  if (!(await vscode.workspace.applyEdit(edit))) {
    return { applied: false, failureReason: "the editor refused the edit" };
  }
  const after = new Map([...before.keys()].map((document) => [document, document.version]));
  void vscode.window.showInformationMessage("Clover: the fix was applied.", "Undo").then(async (undo) => {
    if (undo === "Undo") await takeBack(before, after);
  });
  return { applied: true };
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
