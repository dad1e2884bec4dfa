// Takes the server's settings over into package.json: npm run settings
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const python = process.env.PYTHON ?? "../../.venv/bin/python";
const generated = JSON.parse(execFileSync(python, ["-m", "clover_lsp.settings", "--vscode"], { encoding: "utf8" }));
const manifest = JSON.parse(readFileSync("package.json", "utf8"));
manifest.contributes.configuration[0] = generated;
writeFileSync("package.json", `${JSON.stringify(manifest, null, 2)}\n`);
