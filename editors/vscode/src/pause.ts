/** Which files get no suggestions: paused ones, and languages that the settings switch off. */

import * as vscode from "vscode";

export class Pauses {
  private readonly files = new Set<string>();
  private readonly changed = new vscode.EventEmitter<void>();
  readonly onDidChange = this.changed.event;

  isPaused(document: vscode.TextDocument | undefined): boolean {
    if (!document) return false;
    return this.files.has(document.uri.toString()) || !languageEnabled(document);
  }

  filePaused(document: vscode.TextDocument): boolean {
    return this.files.has(document.uri.toString());
  }

  toggleFile(document: vscode.TextDocument): void {
    const key = document.uri.toString();
    if (!this.files.delete(key)) this.files.add(key);
    this.changed.fire();
  }

  async toggleLanguage(document: vscode.TextDocument): Promise<void> {
    const section = vscode.workspace.getConfiguration("clover", document);
    const languages = { ...section.get<Record<string, boolean>>("completion.languages", {}) };
    languages[document.languageId] = !languageEnabled(document);
    await section.update("completion.languages", languages, vscode.ConfigurationTarget.Global);
    this.changed.fire();
  }
}

export function languageEnabled(document: vscode.TextDocument): boolean {
  const section = vscode.workspace.getConfiguration("clover", document);
  if (!section.get<boolean>("completion.enabled", true)) return false;
  const languages = section.get<Record<string, boolean>>("completion.languages", {});
  return languages[document.languageId] ?? languages["*"] ?? true;
}
