/** Edits in words: an input box at the selection, a diff, and what the user says to it. */

import * as vscode from "vscode";
import type { Server } from "./client";
import type { Previews } from "./fix";

interface Answer {
  applied: boolean;
  kind?: "edit" | "say" | "file";
  reason?: string;
  text: string;
  explanation: string;
  notes: string[];
  edits: { range: { start: vscode.Position; end: vscode.Position }; newText: string }[];
  uri?: string;
}

/** What is asked for; the turns before it were carried out on the same lines. */
interface Wish {
  instruction: string;
  followUps: { instruction: string; text: string }[];
  attempt: number;
}

const APPLY = "Apply";
const AGAIN = "Another Answer";
const MORE = "Say More…";
let count = 0;

/** Asks for words and changes the selected lines as they say, once the user has seen how. */
export async function editInWords(running: Server, previews: Previews, given?: string): Promise<void> {
  const editor = vscode.window.activeTextEditor;
  if (!editor || !running.client) {
    void vscode.window.showWarningMessage("Clover: open a file first; the server must be running.");
    return;
  }
  const instruction = given ?? (await askFor("What is to become of these lines?"));
  if (!instruction) return;
  const { document, selection } = editor;
  const range = new vscode.Range(selection.start, selection.end);
  let wish: Wish = { instruction, followUps: [], attempt: 0 };
  for (;;) {
    const version = document.version;
    const answer = await ask(running, document, range, wish);
    if (!answer?.kind) return; // cancelled, or the server has said why
    if (answer.kind !== "edit") return;
    const edits = answer.edits.map(({ range: at, newText }) => new vscode.TextEdit(asRange(at), newText));
    const said = await decide(document, edits, answer, previews);
    if (said === APPLY) return apply(document, version, edits);
    if (said === AGAIN) {
      wish = { ...wish, attempt: wish.attempt + 1 };
    } else if (said === MORE) {
      const more = await askFor("What is missing?");
      if (!more) return;
      const turn = { instruction: wish.instruction, text: answer.text };
      wish = { instruction: more, followUps: [...wish.followUps, turn], attempt: 0 };
    } else {
      return;
    }
  }
}

async function askFor(prompt: string): Promise<string | undefined> {
  const said = await vscode.window.showInputBox({
    title: "Clover: edit",
    prompt,
    placeHolder: "add a parameter discount, a percentage that defaults to 0",
  });
  return said?.trim() || undefined;
}

/** Asks the server; the line that the model is at is shown meanwhile, with a way to stop it. */
async function ask(
  running: Server,
  document: vscode.TextDocument,
  range: vscode.Range,
  wish: Wish,
): Promise<Answer | undefined> {
  const client = running.client;
  if (!client) return undefined;
  const token = `edit-${++count}`;
  const argument = {
    uri: document.uri.toString(),
    version: document.version,
    range: client.code2ProtocolConverter.asRange(range),
    token,
    ...wish,
  };
  const options = { location: vscode.ProgressLocation.Notification, title: "Clover", cancellable: true };
  return vscode.window.withProgress(options, async (progress, cancel) => {
    const shown = client.onNotification("clover/editPreview", (params: { token: string; text: string }) => {
      if (params.token === token) progress.report({ message: params.text.trimEnd().split("\n").pop()?.trim() });
    });
    try {
      const params = { command: "clover.editSelection", arguments: [argument] };
      return await client.sendRequest<Answer>("workspace/executeCommand", params, cancel);
    } catch (error) {
      if (!cancel.isCancellationRequested) {
        void vscode.window.showErrorMessage(`Clover: ${error instanceof Error ? error.message : String(error)}`);
      }
      return undefined;
    } finally {
      shown.dispose();
    }
  });
}

async function decide(
  document: vscode.TextDocument,
  edits: vscode.TextEdit[],
  answer: Answer,
  previews: Previews,
): Promise<string | undefined> {
  const name = await previews.show(document, edits);
  const words = [answer.explanation, ...answer.notes].filter(Boolean).join(" ") || "Apply this edit?";
  const said = await vscode.window.showInformationMessage(`Clover: ${words}`, APPLY, AGAIN, MORE, "Discard");
  await previews.close([name]);
  return said;
}

async function apply(document: vscode.TextDocument, version: number, edits: vscode.TextEdit[]): Promise<void> {
  if (document.isClosed || document.version !== version) {
    void vscode.window.showWarningMessage("Clover: the text changed meanwhile; ask again.");
    return;
  }
  const edit = new vscode.WorkspaceEdit();
  edit.set(document.uri, edits);
  await vscode.workspace.applyEdit(edit);
}

function asRange(at: { start: vscode.Position; end: vscode.Position }): vscode.Range {
  return new vscode.Range(at.start.line, at.start.character, at.end.line, at.end.character);
}

interface Repository {
  rootUri: vscode.Uri;
  inputBox: { value: string };
}

/** Writes a message for what is staged into the box of Source Control. */
export async function commitMessage(running: Server, control?: { rootUri?: vscode.Uri }): Promise<void> {
  const git = vscode.extensions.getExtension<{ getAPI(version: 1): { repositories: Repository[] } }>("vscode.git");
  const repositories = (await git?.activate())?.getAPI(1).repositories ?? [];
  const wanted = control?.rootUri?.toString();
  const repository = repositories.find(({ rootUri }) => rootUri.toString() === wanted) ?? repositories[0];
  const client = running.client;
  if (!repository || !client) {
    void vscode.window.showWarningMessage("Clover: open a git repository first; the server must be running.");
    return;
  }
  const options = { location: vscode.ProgressLocation.SourceControl, title: "Clover: commit message" };
  await vscode.window.withProgress(options, async () => {
    const params = { command: "clover.commitMessage", arguments: [{ uri: repository.rootUri.toString() }] };
    const answer = await client.sendRequest<{ message?: string }>("workspace/executeCommand", params);
    if (answer?.message) repository.inputBox.value = answer.message;
  });
}
