/** The menu behind the status item, and the set-up of the server. */

import * as vscode from "vscode";
import type { Server } from "./client";
import { languageEnabled, type Pauses } from "./pause";
import { createEnvironment } from "./server";
import type { StatusItem } from "./status";

interface Entry extends vscode.QuickPickItem {
  run?: () => unknown;
}

export async function showMenu(
  status: StatusItem,
  pauses: Pauses,
  log: vscode.LogOutputChannel,
): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  const separator = { label: "", kind: vscode.QuickPickItemKind.Separator };
  const command = (label: string, name: string): Entry => ({
    label,
    run: () => vscode.commands.executeCommand(name),
  });
  const entries: Entry[] = [command("$(wand) Fix…", "cloverCode.fix"), command("$(comment) Edit in words…", "cloverCode.edit"), command("$(edit) Next edit", "cloverCode.nextEdit"), separator];
  if (document) {
    const file = pauses.filePaused(document) ? "$(play) Resume in this file" : "$(debug-pause) Pause in this file";
    entries.push({ label: file, run: () => pauses.toggleFile(document) });
    const on = languageEnabled(document);
    const label = `${on ? "$(debug-pause) Pause" : "$(play) Resume"} for ${document.languageId}`;
    entries.push({ label, run: () => pauses.toggleLanguage(document) }, separator);
  }
  entries.push(
    { label: "$(chip) Engine…", description: engine(), run: chooseEngine },
    command("$(package) Model…", "cloverCode.model"),
    command("$(gear) Settings", "cloverCode.settings"),
    { label: "$(output) Log", run: () => log.show() },
    command("$(debug-restart) Restart the server", "cloverCode.restart"),
    command("$(cloud-download) Set up the server…", "cloverCode.setUp"),
    command("$(book) Walkthrough", "cloverCode.walkthrough"),
  );
  const { kind, message } = status.current;
  const title = `Clover: ${message || kind.toLowerCase()}`;
  const picked = await vscode.window.showQuickPick(entries, { title });
  await picked?.run?.();
}

function engine(): string {
  return vscode.workspace.getConfiguration("clover").get<string>("engine", "auto");
}

async function chooseEngine(): Promise<void> {
  const inspected = vscode.extensions.getExtension("clover-code.clover-code")?.packageJSON as
    | { contributes: { configuration: { properties: Record<string, { enum?: string[]; enumDescriptions?: string[] }> } } }
    | undefined;
  const setting = inspected?.contributes.configuration.properties["clover.engine"];
  const now = engine();
  const entries = (setting?.enum ?? ["auto"]).map((label, at) => ({
    label,
    description: label === now ? "current" : undefined,
    detail: setting?.enumDescriptions?.[at],
  }));
  const picked = await vscode.window.showQuickPick(entries, { title: "Clover: engine" });
  if (picked) {
    await vscode.workspace
      .getConfiguration("clover")
      .update("engine", picked.label, vscode.ConfigurationTarget.Global);
  }
}

/** Offers to make the Python environment with the server, then starts it. */
export async function setUp(
  context: vscode.ExtensionContext,
  server: Server,
  log: vscode.LogOutputChannel,
): Promise<void> {
  const withModel = "With the model (about 1 GB)";
  const without = "Without the model (look-up and fixes only)";
  const choice = await vscode.window.showInformationMessage(
    "Clover needs its server: a Python environment in this extension's own folder, made with pip. Nothing else on this machine changes.",
    { modal: true },
    withModel,
    without,
  );
  if (!choice) return;
  await server.stop();
  try {
    await createEnvironment(context, choice === withModel, log);
  } catch (error) {
    const message = error instanceof Error ? error.message.split("\n")[0] : String(error);
    log.error(String(error));
    if ((await vscode.window.showErrorMessage(`Clover: ${message}`, "Show log")) === "Show log") log.show();
    return;
  }
  await server.start();
}
