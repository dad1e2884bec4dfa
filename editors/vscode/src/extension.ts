/** clover-code in VS Code: starts the server, and adds what the protocol has no place for. */

import * as vscode from "vscode";
import { Server } from "./client";
import { fix, Previews } from "./fix";
import { setUp, showMenu } from "./menu";
import { NextEdit } from "./nextEdit";
import { Pauses } from "./pause";
import { StatusItem } from "./status";

const WALKTHROUGH = "clover-code.clover-code#start";
let server: Server | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const log = vscode.window.createOutputChannel("Clover", { log: true });
  const status = new StatusItem();
  const pauses = new Pauses();
  const previews = new Previews();
  const running = new Server(context, status, pauses, log);
  server = running;
  const nextEdit = new NextEdit(() => running.client);
  const drawPause = () => status.setPaused(pauses.isPaused(vscode.window.activeTextEditor?.document));

  const command = (name: string, run: (...args: never[]) => unknown) =>
    vscode.commands.registerCommand(`cloverCode.${name}`, run);
  context.subscriptions.push(
    log,
    status,
    previews,
    running,
    nextEdit,
    command("menu", () => showMenu(status, pauses, log)),
    command("fix", () => chooseFix(running, previews)),
    command("fixTests", () => fixTests(running, previews)),
    command("nextEdit", () => nextEdit.go()),
    command("dismissNextEdit", () => nextEdit.clear()),
    command("restart", () => running.restart()),
    command("setUp", () => setUp(context, running, log)),
    command("settings", () => vscode.commands.executeCommand("workbench.action.openSettings", "@ext:clover-code.clover-code")),
    command("walkthrough", () => vscode.commands.executeCommand("workbench.action.openWalkthrough", WALKTHROUGH, false)),
    command("log", () => log.show()),
    pauses.onDidChange(drawPause),
    vscode.window.onDidChangeActiveTextEditor((editor) => {
      drawPause();
      if (editor) void running.client?.sendNotification("textDocument/didFocus", { textDocument: { uri: editor.document.uri.toString() } });
    }),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("clover.server")) void running.restart();
      else if (event.affectsConfiguration("clover")) running.configure();
      if (event.affectsConfiguration("clover.completion")) drawPause();
    }),
  );
  drawPause();
  const started = await running.start();
  await welcome(context, started);
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}

/** On the first start: the walkthrough; and while there is no server, an offer to set it up. */
async function welcome(context: vscode.ExtensionContext, started: boolean): Promise<void> {
  if (!context.globalState.get<boolean>("welcomed")) {
    await context.globalState.update("welcomed", true);
    void vscode.commands.executeCommand("cloverCode.walkthrough");
  } else if (!started) {
    const choice = await vscode.window.showWarningMessage("Clover: the server is not installed or does not start.", "Set up…", "Show log");
    if (choice) await vscode.commands.executeCommand(choice === "Set up…" ? "cloverCode.setUp" : "cloverCode.log");
  }
}

async function chooseFix(running: Server, previews: Previews): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor || !running.client) {
    void vscode.window.showWarningMessage("Clover: open a file first; the server must be running.");
    return;
  }
  const position = editor.selection.active;
  const here = vscode.languages
    .getDiagnostics(editor.document.uri)
    .filter((found) => found.range.start.line <= position.line && position.line <= found.range.end.line);
  const entries = [
    ...here.map((found) => ({ label: `$(lightbulb) ${found.message}`, description: found.source, diagnostic: found })),
    { label: "$(beaker) What the tests say", description: "runs the check in copies of the tree", diagnostic: undefined },
  ];
  const picked = await vscode.window.showQuickPick(entries, { title: "Clover: fix" });
  if (!picked) return;
  if (!picked.diagnostic) return fixTests(running, previews);
  const diagnostic = running.client.code2ProtocolConverter.asDiagnostic(picked.diagnostic);
  const textDocument = { uri: editor.document.uri.toString(), version: editor.document.version };
  await fix(running.client, previews, "clover.fixDiagnostic", { ...textDocument, diagnostic });
}

async function fixTests(running: Server, previews: Previews): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (!vscode.workspace.isTrusted) {
    const choice = await vscode.window.showWarningMessage("Clover: running tests runs this folder's code; trust it first.", "Manage trust");
    if (choice) await vscode.commands.executeCommand("workbench.trust.manage");
    return;
  }
  if (!document || !running.client) {
    void vscode.window.showWarningMessage("Clover: open a file of the project first; the server must be running.");
    return;
  }
  await fix(running.client, previews, "clover.fixTests", { uri: document.uri.toString() });
}
