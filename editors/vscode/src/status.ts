/** The item in the status bar: what the server is doing, and a menu. */

import * as vscode from "vscode";

export type Kind = "Normal" | "Warning" | "Error" | "Inactive";

export interface Status {
  kind: Kind;
  busy?: boolean;
  message?: string;
}

const icons: Record<Kind, string> = {
  Normal: "$(sparkle)",
  Warning: "$(info)",
  Error: "$(warning)",
  Inactive: "$(circle-slash)",
};
const words: Record<Kind, string> = {
  Normal: "ready",
  Warning: "limited",
  Error: "failed",
  Inactive: "off",
};

export class StatusItem implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;
  current: Status = { kind: "Inactive", message: "not started" };
  private paused = false;

  constructor() {
    this.item = vscode.window.createStatusBarItem("clover", vscode.StatusBarAlignment.Right, 90);
    this.item.name = "Clover";
    this.item.command = "cloverCode.menu";
    this.draw();
    this.item.show();
  }

  set(status: Status): void {
    this.current = status;
    this.draw();
  }

  /** Suggestions are switched off for the file that is shown. */
  setPaused(paused: boolean): void {
    this.paused = paused;
    this.draw();
  }

  private draw(): void {
    const { kind, busy, message } = this.current;
    const paused = this.paused && kind !== "Error";
    const icon = busy ? "$(loading~spin)" : paused ? "$(debug-pause)" : icons[kind];
    const word = paused ? "paused" : busy ? "working" : words[kind];
    this.item.text = `${icon} Clover: ${word}`;
    this.item.tooltip = message ? `Clover: ${word}\n${message}` : `Clover: ${word}`;
    this.item.accessibilityInformation = { label: `Clover: ${word}` };
    this.item.backgroundColor =
      kind === "Error" ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
  }

  dispose(): void {
    this.item.dispose();
  }
}
