// Runs inside the real extension host; VS Code calls `run`. What the tests need to know comes in
// `wanted.json` of the opened folder, and what became of each goes to `report.json` beside it.
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const vscode = require("vscode");

const ID = "clover-code.clover-code";
const SLOW_MS = 30_000;
const folder = vscode.workspace.workspaceFolders[0].uri;
const wanted = JSON.parse(fs.readFileSync(path.join(folder.fsPath, "wanted.json"), "utf8"));

/** The first true value of `look`, asked again and again. */
async function until(look, what) {
  const end = Date.now() + SLOW_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`${what} did not happen`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function open(name, text) {
  const uri = vscode.Uri.joinPath(folder, name);
  fs.writeFileSync(uri.fsPath, text);
  const editor = await vscode.window.showTextDocument(await vscode.workspace.openTextDocument(uri));
  const last = editor.document.lineAt(editor.document.lineCount - 1).range.end;
  editor.selection = new vscode.Selection(last, last);
  return editor;
}

/** Types, and takes what is suggested as soon as something is. */
async function typeAndTake(editor, typed) {
  await vscode.commands.executeCommand("type", { text: typed });
  const before = editor.document.getText();
  await until(async () => {
    await vscode.commands.executeCommand("editor.action.inlineSuggest.trigger");
    await vscode.commands.executeCommand("editor.action.inlineSuggest.commit");
    return editor.document.getText() !== before;
  }, "a suggestion");
  return editor.document.getText();
}

/** The tabs that show a difference. */
function diffs() {
  return vscode.window.tabGroups.all
    .flatMap(({ tabs }) => tabs)
    .filter(({ input }) => input instanceof vscode.TabInputTextDiff);
}

function serverRuns() {
  return vscode.commands.getCommands(true).then((names) => names.includes("clover.status"));
}

const tests = {
  async "the extension starts by itself"() {
    const extension = vscode.extensions.getExtension(ID);
    assert.ok(extension, "the extension is installed");
    await until(() => extension.isActive, "activation");
  },

  async "every contributed command is registered, and each command once"() {
    await until(serverRuns, "the server's start");
    const names = await vscode.commands.getCommands(true);
    const { commands } = vscode.extensions.getExtension(ID).packageJSON.contributes;
    const ours = names.filter((name) => name.startsWith("cloverCode."));
    for (const { command } of commands) assert.ok(ours.includes(command), command);
    const servers = names.filter((name) => name.startsWith("clover."));
    assert.deepEqual(servers.toSorted(), wanted.commands.toSorted());
    assert.equal(new Set(names).size, names.length);
  },

  async "the defaults of the settings are the server's"() {
    const settings = vscode.workspace.getConfiguration("clover");
    const found = Object.fromEntries(
      Object.keys(wanted.defaults).map((name) => [name, settings.inspect(name)?.defaultValue]),
    );
    assert.deepEqual(found, wanted.defaults);
    const { configuration } = vscode.extensions.getExtension(ID).packageJSON.contributes;
    assert.deepEqual(configuration[0].properties, wanted.properties);
  },

  async "a workspace cannot name the server's program"() {
    const settings = vscode.workspace.getConfiguration("clover.server", folder);
    await assert.rejects(
      Promise.resolve(settings.update("command", ["evil"], vscode.ConfigurationTarget.Workspace)),
    );
  },

  async "what is typed is completed"() {
    const editor = await open("typed.py", "def add(a, b):\n    ");
    assert.equal(await typeAndTake(editor, "retur"), "def add(a, b):\n    return a + b");
  },

  async "untitled documents are completed too"() {
    const document = await vscode.workspace.openTextDocument({ language: "python", content: "" });
    const editor = await vscode.window.showTextDocument(document);
    assert.equal(await typeAndTake(editor, "retur"), "return a + b");
  },

  async "the server's own words about itself"() {
    const status = await vscode.commands.executeCommand("clover.status");
    assert.equal(status.works, true);
    assert.equal(status.kind, "Normal");
  },

  async "a code action repairs a diagnostic of someone else"() {
    const good = "count = 1\nprint(count)\n";
    const { document } = await open("wrong.py", good.replace("(count", "(coutn"));
    const range = new vscode.Range(1, 6, 1, 11);
    const diagnostic = new vscode.Diagnostic(range, "Undefined name `coutn`");
    Object.assign(diagnostic, { source: "Ruff", code: "F821" });
    const published = vscode.languages.createDiagnosticCollection("someone else");
    published.set(document.uri, [diagnostic]);
    const ask = ["vscode.executeCodeActionProvider", document.uri, range, "quickfix", 5];
    const actions = await until(
      () => vscode.commands.executeCommand(...ask).then((found) => found.length && found),
      "an action",
    );
    published.dispose();
    const titles = actions.map(({ title }) => title);
    assert.deepEqual(titles, ["Fix: Undefined name `coutn`", "Fix with tests"]);
    assert.ok(await vscode.workspace.applyEdit(actions[0].edit));
    assert.equal(document.getText(), good);
  },

  async "selected lines are changed in words, once the difference was seen"() {
    const editor = await open("words.py", "def first(items):\n    return items[0]\n\n\nx = 1\n");
    editor.selection = new vscode.Selection(0, 0, 1, 19);
    const before = editor.document.getText();
    const running = vscode.commands.executeCommand("cloverCode.edit", "None for no items");
    await until(() => diffs().length === 1, "the difference");
    const [tab] = diffs();
    const proposed = await vscode.workspace.openTextDocument(tab.input.modified);
    assert.equal(proposed.getText(), before.replace("items[0]", "items[0] if items else None"));
    assert.equal(editor.document.getText(), before, "nothing has changed yet");
    await until(async () => {
      await vscode.commands.executeCommand("notifications.focusFirstToast");
      await vscode.commands.executeCommand("notification.acceptPrimaryAction");
      return editor.document.getText() === proposed.getText();
    }, "the edit");
    await running;
    assert.equal(diffs().length, 0);
  },

  async "presets are code actions of a selection"() {
    const { document } = await open("preset.py", "def first(items):\n    return items[0]\n");
    const range = new vscode.Range(0, 0, 1, 19);
    const ask = ["vscode.executeCodeActionProvider", document.uri, range, "refactor.rewrite", 0];
    const actions = await until(
      () => vscode.commands.executeCommand(...ask).then((found) => found.length > 1 && found),
      "the actions",
    );
    const titles = actions.map(({ title }) => title);
    for (const title of ["Write a docstring", "Explain this", "Write tests for this"])
      assert.ok(titles.includes(title), `${title} in ${titles}`);
  },

  async "the server starts anew when told to"() {
    await vscode.commands.executeCommand("cloverCode.restart");
    await until(serverRuns, "the server's start");
    const editor = await open("again.py", "def add(a, b):\n    ");
    assert.equal(await typeAndTake(editor, "retur"), "def add(a, b):\n    return a + b");
  },
};

exports.run = async () => {
  const report = {};
  for (const [name, test] of Object.entries(tests)) {
    report[name] = await test().then(
      () => "passed",
      (error) => String(error.stack ?? error),
    );
    fs.writeFileSync(path.join(folder.fsPath, "report.json"), JSON.stringify(report));
  }
  const failed = Object.values(report).filter((result) => result !== "passed");
  if (failed.length) throw new Error(`${failed.length} failed`);
};
