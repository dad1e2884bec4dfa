/** The language client: started, watched, restarted after crashes with growing pauses. */

import * as vscode from "vscode";
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  type LanguageClientOptions,
  State,
  TransportKind,
} from "vscode-languageclient/node";
import { type Previews, review } from "./fix";
import { mayRunCode } from "./trust";
import type { Pauses } from "./pause";
import { findServer } from "./server";
import type { Status, StatusItem } from "./status";

const PAUSES_MS = [1000, 3000, 10_000, 30_000];
const FORGIVEN_AFTER_MS = 300_000;
/** Commands of the server that change files without the user having seen how. */
const REVIEWED = new Set(["clover.fixTests", "clover.fixDiagnostic"]);
/** The one that runs code of the opened folder. */
const RUNS_CODE = "clover.fixTests";

/** The settings without those of the extension itself, which the server does not know. */
function serverSettings(): unknown {
  return withoutOurs(vscode.workspace.getConfiguration("clover"));
}

function withoutOurs(settings: unknown): unknown {
  if (typeof settings !== "object" || settings === null) return settings;
  return Object.fromEntries(
    Object.entries(settings).filter(([name, value]) => name !== "server" && typeof value !== "function"),
  );
}

export class Server implements vscode.Disposable {
  client: LanguageClient | undefined;
  private crashes = 0;
  private lastCrash = 0;
  private stopping = false;
  private reviewing = 0;
  private readonly idle = new vscode.EventEmitter<void>();
  /** The model is loaded, or the index is made: what was not answered before would be now. */
  readonly onDidBecomeIdle = this.idle.event;
  private again: NodeJS.Timeout | undefined;

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly status: StatusItem,
    private readonly pauses: Pauses,
    private readonly previews: Previews,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  /** Starts the server; false where there is none yet. */
  async start(): Promise<boolean> {
    const found = await findServer(this.context);
    if (!found) {
      this.status.set({ kind: "Error", message: "The server clover-code is not installed. Click to set it up." });
      return false;
    }
    this.log.info(`starting ${[found.command, ...found.args].join(" ")} (from ${found.from})`);
    const run = { command: found.command, args: found.args, transport: TransportKind.stdio };
    this.stopping = false;
    const client = new LanguageClient("cloverCode", "Clover", { run, debug: run }, this.options());
    this.client = client;
    let said: Status = { kind: "Normal", message: found.from };
    let started = false; // only then the editor asks the server for suggestions
    const tell = () => {
      const wasBusy = this.status.current.busy;
      this.status.set({ ...said, busy: said.busy || !started });
      if (wasBusy && !this.status.current.busy) this.idle.fire();
    };
    client.onNotification("didChangeStatus", (status: Status) => {
      said = status;
      tell();
    });
    client.onDidChangeState((event) => {
      if (event.newState === State.Starting) this.status.set({ kind: "Normal", busy: true, message: "starting" });
    });
    try {
      await client.start();
      started = true;
      tell();
      return true;
    } catch (error) {
      this.status.set({ kind: "Error", message: `The server did not start: ${String(error)}` });
      return false;
    }
  }

  private options(): LanguageClientOptions {
    return {
      documentSelector: [
        { scheme: "file" },
        { scheme: "untitled" },
        { scheme: "vscode-vfs" },
        { notebook: "*", language: "python" },
      ],
      outputChannel: this.log,
      initializationOptions: serverSettings(),
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => {
          this.lost();
          return { action: CloseAction.DoNotRestart, handled: true };
        },
      },
      middleware: {
        workspace: {
          configuration: async (params, token, next) => {
            const found = await next(params, token);
            return Array.isArray(found) ? found.map(withoutOurs) : found;
          },
          handleApplyEdit: async (params, next) => {
            if (!this.reviewing) return next(params, new vscode.CancellationTokenSource().token);
            const edit = await this.client?.protocol2CodeConverter.asWorkspaceEdit(params.edit);
            const label = params.label ?? "A fix was found.";
            return edit ? review(edit, this.previews, label) : { applied: false, failureReason: "no edit" };
          },
        },
        executeCommand: (command, args, next) => this.allowed(command, () => next(command, args)),
        provideInlineCompletionItems: (document, position, context, token, next) =>
          this.pauses.isPaused(document) && context.triggerKind !== vscode.InlineCompletionTriggerKind.Invoke
            ? undefined
            : next(document, position, context, token),
      },
    };
  }

  /** Runs a command of the server, from a code action or ours, under the rules above. */
  private async allowed(command: string, run: () => unknown): Promise<unknown> {
    if (command === RUNS_CODE && !(await mayRunCode())) return undefined;
    if (!REVIEWED.has(command)) return run();
    this.reviewing++;
    try {
      return await run();
    } finally {
      this.reviewing--;
    }
  }

  /** Runs a command of the server; what it wants to change is reviewed before it is applied. */
  async run(command: string, argument: Record<string, unknown>): Promise<void> {
    const params = { command, arguments: [argument] };
    try {
      await this.allowed(command, () => this.client?.sendRequest("workspace/executeCommand", params));
    } catch (error) {
      void vscode.window.showErrorMessage(`Clover: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  /** Tells the server that settings changed. */
  configure(): void {
    const params = { settings: { clover: serverSettings() } };
    void this.client?.sendNotification("workspace/didChangeConfiguration", params);
  }

  private lost(): void {
    if (this.stopping) return;
    const now = Date.now();
    if (now - this.lastCrash > FORGIVEN_AFTER_MS) this.crashes = 0;
    this.lastCrash = now;
    const pause = PAUSES_MS[this.crashes++];
    if (pause === undefined) {
      this.status.set({ kind: "Error", message: "The server keeps ending. Click for the log and to restart it." });
      return;
    }
    this.status.set({ kind: "Warning", busy: true, message: `The server ended; starting again in ${pause / 1000} s` });
    this.again = setTimeout(() => void this.replace(), pause);
  }

  private async replace(): Promise<void> {
    await this.client?.dispose().catch(() => undefined);
    await this.start();
  }

  async restart(): Promise<void> {
    this.crashes = 0;
    await this.stop();
    await this.start();
  }

  async stop(): Promise<void> {
    this.stopping = true;
    clearTimeout(this.again);
    const client = this.client;
    this.client = undefined;
    await client?.dispose(2000).catch(() => undefined);
    this.status.set({ kind: "Inactive", message: "stopped" });
  }

  dispose(): void {
    void this.stop();
  }
}
