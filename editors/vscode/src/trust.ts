/** Code of the opened folder runs only where the user trusts the folder. */

import * as vscode from "vscode";

/** True where it may run; otherwise says why not and offers to change that. */
export async function mayRunCode(): Promise<boolean> {
  if (vscode.workspace.isTrusted) return true;
  const said = "Clover: running tests runs this folder's code; trust it first.";
  const choice = await vscode.window.showWarningMessage(said, "Manage trust");
  if (choice) await vscode.commands.executeCommand("workbench.trust.manage");
  return false;
}
