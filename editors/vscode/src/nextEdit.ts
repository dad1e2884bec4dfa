/** The next edit: shown in place, jumped to, applied. Stable API only: decorations and a key. */

import * as vscode from "vscode";
import type { BaseLanguageClient } from "vscode-languageclient/node";

interface ProtocolEdit {
  text: string;
  textDocument: { uri: string; version: number };
  range: { start: { line: number; character: number }; end: { line: number; character: number } };
  command?: { command: string; arguments?: unknown[] };
}

interface Shown {
  edit: ProtocolEdit;
  document: vscode.TextDocument;
  version: number;
  range: vscode.Range;
}

const QUIET_MS = 300;
const CONTEXT = "cloverCode.nextEditVisible";

export class NextEdit implements vscode.Disposable {
  private shown: Shown | undefined;
  private timer: NodeJS.Timeout | undefined;
  private asking: vscode.CancellationTokenSource | undefined;
  private readonly replaced = vscode.window.createTextEditorDecorationType({
    backgroundColor: new vscode.ThemeColor("diffEditor.removedTextBackground"),
    overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.modifiedForeground"),
    overviewRulerLane: vscode.OverviewRulerLane.Left,
    after: { color: new vscode.ThemeColor("editorGhostText.foreground"), margin: "0 0 0 1ch" },
  });
  private readonly hint = vscode.window.createTextEditorDecorationType({
    after: { color: new vscode.ThemeColor("editorGhostText.foreground"), margin: "0 0 0 2ch" },
  });
  private readonly subscriptions: vscode.Disposable[];

  constructor(private readonly client: () => BaseLanguageClient | undefined) {
    this.subscriptions = [
      this.replaced,
      this.hint,
      vscode.workspace.onDidChangeTextDocument((event) => this.changed(event)),
      vscode.window.onDidChangeActiveTextEditor(() => this.clear()),
    ];
  }

  private changed(event: vscode.TextDocumentChangeEvent): void {
    if (event.document !== vscode.window.activeTextEditor?.document || !event.contentChanges.length) return;
    this.clear();
    const section = vscode.workspace.getConfiguration("clover", event.document);
    if (!section.get<boolean>("nextEdit.enabled", true)) return;
    this.timer = setTimeout(() => void this.ask(false), QUIET_MS);
  }

  /** Asks the server; `invoked` where the user wants one now. */
  async ask(invoked: boolean): Promise<boolean> {
    const editor = vscode.window.activeTextEditor;
    const client = this.client();
    if (!editor || !client) return false;
    this.clear();
    const { document } = editor;
    const version = document.version;
    this.asking = new vscode.CancellationTokenSource();
    const params = {
      textDocument: { uri: document.uri.toString(), version },
      position: editor.selection.active,
      context: { triggerKind: invoked ? 1 : 2 },
    };
    const answer = await client
      .sendRequest<{ edits: ProtocolEdit[] } | null>("textDocument/copilotInlineEdit", params, this.asking.token)
      .catch(() => null);
    const edit = answer?.edits[0];
    if (!edit || document.version !== version || vscode.window.activeTextEditor !== editor) return false;
    this.show(editor, edit, version);
    void client.sendNotification("textDocument/didShowInlineEdit", { item: edit });
    return true;
  }

  private show(editor: vscode.TextEditor, edit: ProtocolEdit, version: number): void {
    const { start, end } = edit.range;
    const range = new vscode.Range(start.line, start.character, end.line, end.character);
    this.shown = { edit, document: editor.document, version, range };
    const text = edit.text.replace(/\s*\n\s*/g, " ⏎ ");
    editor.setDecorations(this.replaced, [
      { range, renderOptions: { after: { contentText: text } }, hoverMessage: new vscode.MarkdownString().appendCodeblock(edit.text, editor.document.languageId) },
    ]);
    const here = editor.selection.active;
    if (!editor.visibleRanges.some((visible) => visible.contains(range.start))) {
      const contentText = `next edit in line ${start.line + 1}`;
      editor.setDecorations(this.hint, [{ range: new vscode.Range(here, here), renderOptions: { after: { contentText } } }]);
    }
    void vscode.commands.executeCommand("setContext", CONTEXT, true);
  }

  /** Jumps to the edit; where the cursor is on its line already, applies it. */
  async go(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    if (!this.shown && !(await this.ask(true))) {
      vscode.window.setStatusBarMessage("Clover: no next edit", 3000);
      return;
    }
    const shown = this.shown;
    if (!editor || !shown || shown.document !== editor.document || shown.document.version !== shown.version) return;
    if (editor.selection.active.line !== shown.range.start.line) {
      editor.selection = new vscode.Selection(shown.range.start, shown.range.start);
      editor.revealRange(shown.range, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
      return;
    }
    this.clear();
    await editor.edit((builder) => builder.replace(shown.range, shown.edit.text));
    if (shown.edit.command) {
      await vscode.commands.executeCommand(shown.edit.command.command, ...(shown.edit.command.arguments ?? []));
    }
  }

  clear(): void {
    clearTimeout(this.timer);
    this.asking?.cancel();
    this.asking = undefined;
    if (!this.shown) return;
    this.shown = undefined;
    for (const editor of vscode.window.visibleTextEditors) {
      editor.setDecorations(this.replaced, []);
      editor.setDecorations(this.hint, []);
    }
    void vscode.commands.executeCommand("setContext", CONTEXT, false);
  }

  dispose(): void {
    this.clear();
    for (const item of this.subscriptions) item.dispose();
  }
}
