/** clover-code in VS Code: starts the server, and adds what the protocol has no place for. */

import * as vscode from "vscode";
import { Server } from "./client";
import { Previews } from "./fix";
import { commitMessage, editInWords } from "./instruct";
import { setUp, showMenu } from "./menu";
import { chooseModel, offerModel } from "./models";
import { NextEdit } from "./nextEdit";
import { Pauses } from "./pause";
import { StatusItem } from "./status";

/** What was typed while the model was still loading gets its suggestion once it is there. */
const TYPED_LATELY_MS = 15_000;
const WALKTHROUGH = "clover-code.clover-code#start";
let server: Server | undefined;

export function activate(context: vscode.ExtensionContext): void {
  const log = vscode.window.createOutputChannel("Clover", { log: true });
  const status = new StatusItem();
  const pauses = new Pauses();
  const previews = new Previews();
  const running = new Server(context, status, pauses, previews, log);
  server = running;
  const nextEdit = new NextEdit(() => running.client);
  let typedAt = Date.now(); // what was typed before now is not known
  const suggestAgain = () => {
    if (Date.now() - typedAt > TYPED_LATELY_MS) return;
    void vscode.commands.executeCommand("editor.action.inlineSuggest.trigger", { explicit: false });
  };
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
    command("fix", () => chooseFix(running)),
    command("fixTests", () => fixTests(running)),
    command("edit", (words?: string) => editInWords(running, previews, words)),
    command("commitMessage", (control?: { rootUri?: vscode.Uri }) => commitMessage(running, control)),
    command("nextEdit", () => nextEdit.go()),
    command("dismissNextEdit", () => nextEdit.clear()),
    command("restart", () => running.restart()),
    command("setUp", () => setUp(context, running, log)),
    command("model", () => chooseModel(running)),
    command("settings", () => vscode.commands.executeCommand("workbench.action.openSettings", "@ext:clover-code.clover-code")),
    command("walkthrough", () => vscode.commands.executeCommand("workbench.action.openWalkthrough", WALKTHROUGH, false)),
    command("log", () => log.show()),
    pauses.onDidChange(drawPause),
    running.onDidBecomeIdle(suggestAgain),
    vscode.workspace.onDidChangeTextDocument(({ document, contentChanges }) => {
      if (contentChanges.length && document === vscode.window.activeTextEditor?.document) typedAt = Date.now();
    }),
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
  // Nothing below is waited for: commands work only once this function has returned.
  void running.start().then(async (started) => {
    const first = await welcome(context, started);
    if (started && !first) await offerModel(context, running);
  });
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}

/**
 * On the first start the walkthrough, unless someone is at work in a file already: then only an
 * offer of it. While there is no server, an offer to set it up. Resolves to whether it was the first.
 */
async function welcome(context: vscode.ExtensionContext, started: boolean): Promise<boolean> {
  const first = !context.globalState.get<boolean>("welcomed");
  await context.globalState.update("welcomed", true);
  if (first && !vscode.window.activeTextEditor) {
    await vscode.commands.executeCommand("cloverCode.walkthrough");
  } else if (first && started) {
    await offer("Clover is on. Grey text is a suggestion; Tab takes it.", { Walkthrough: "walkthrough" });
  } else if (!started) {
    await offer("Clover: the server is not installed or does not start.", { "Set up…": "setUp", "Show log": "log" });
  }
  return first;
}

async function offer(message: string, choices: Record<string, string>): Promise<void> {
  const choice = await vscode.window.showInformationMessage(message, ...Object.keys(choices));
  if (choice) await vscode.commands.executeCommand(`cloverCode.${choices[choice]}`);
}

async function chooseFix(running: Server): Promise<void> {
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
  if (!picked.diagnostic) return fixTests(running);
  const diagnostic = running.client.code2ProtocolConverter.asDiagnostic(picked.diagnostic);
  const { uri, version } = editor.document;
  await running.run("clover.fixDiagnostic", { uri: uri.toString(), version, diagnostic });
}

async function fixTests(running: Server): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (!document || !running.client) {
    void vscode.window.showWarningMessage("Clover: open a file of the project first; the server must be running.");
    return;
  }
  await running.run("clover.fixTests", { uri: document.uri.toString() });
}
