// node prove.mjs PARTS CERTIFICATE...: what the page does, without a browser. PARTS is the folder that build.py fills.
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const [parts, ...certificates] = process.argv.slice(2);
const {loadPyodide} = await import(pathToFileURL(`${parts}/pyodide.mjs`));
const python = await loadPyodide({indexURL: `${parts}/`, lockFileContents: readFileSync(`${parts}/lock.json`, "utf8")});
const bytes = (name) => new Uint8Array(readFileSync(`${parts}/${name}`));
python.unpackArchive(bytes("flint.whl"), "wheel");
python.unpackArchive(bytes("verifier.zip"), "zip");
await python.runPythonAsync("import sys; sys.path.insert(0, '.'); import prover");
const {verdict} = python.pyimport("prover");
for (const path of certificates) console.log(verdict(readFileSync(path, "utf8")));
