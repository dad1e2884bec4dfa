/** The model on this machine: which there are, getting one, using one. */

import * as vscode from "vscode";
import type { Server } from "./client";

interface Model {
  name: string;
  bytes: number;
  licence: string;
  purpose: string;
  installed: boolean;
  inUse: boolean;
}

const OFFERED = "offeredModel";
const OFFER = "coder-0.5b";

function size(model: Model): string {
  return `${Math.round(model.bytes / 1e6)} MB, ${model.licence}`;
}

function asked<T>(server: Server, command: string, argument?: object): Promise<T> | undefined {
  return server.client?.sendRequest<T>("workspace/executeCommand", { command, arguments: argument ? [argument] : [] });
}

/** All models to choose from; nothing is downloaded before the user has seen its size and said yes. */
export async function chooseModel(server: Server): Promise<void> {
  const models = await asked<Model[]>(server, "clover.models");
  if (!models) {
    void vscode.window.showWarningMessage("Clover: the server is not running.");
    return;
  }
  const entries = models.map((model) => ({
    label: model.name,
    description: model.inUse ? "in use" : model.installed ? "installed" : size(model),
    detail: model.purpose,
    model,
  }));
  const picked = await vscode.window.showQuickPick(entries, { title: "Clover: model" });
  if (!picked) return;
  const { model } = picked;
  const download = `Download ${size(model)}`;
  if (!model.installed && (await vscode.window.showInformationMessage(`Clover: get ${model.name}?`, { modal: true }, download)) !== download)
    return;
  await getAndUse(server, model);
}

/** Once, and only where nothing but the small model is there. */
export async function offerModel(context: vscode.ExtensionContext, server: Server): Promise<void> {
  if (context.globalState.get<boolean>(OFFERED)) return;
  const models = await asked<Model[]>(server, "clover.models");
  const model = models?.find(({ name }) => name === OFFER);
  if (!models || !model || models.filter(({ installed }) => installed).length > 1) return;
  await context.globalState.update(OFFERED, true);
  const get = "Get it";
  const message = `Clover: a larger model suggests more, in any language: ${model.name}, ${size(model)}. It stays on this machine.`;
  if ((await vscode.window.showInformationMessage(message, get, "Not now")) === get) await getAndUse(server, model);
}

async function getAndUse(server: Server, model: Model): Promise<void> {
  if (!model.installed) {
    const got = await asked<{ installed: boolean; reason: string }>(server, "clover.getModel", { name: model.name });
    if (!got?.installed) {
      void vscode.window.showWarningMessage(`Clover: ${got?.reason ?? "the server has ended"}`);
      return;
    }
  }
  const used = await asked<{ used: boolean; reason: string }>(server, "clover.useModel", { name: model.name });
  if (used?.used) void vscode.window.showInformationMessage(`Clover: ${model.name} is used from now on.`);
  else void vscode.window.showWarningMessage(`Clover: ${used?.reason ?? "the server has ended"}`);
}
