// Runs Python and the verifier in a thread of its own. The page sends every part as gzipped bytes; nothing is fetched.
// A classic worker, since browsers refuse module workers to a page that was opened from disk.
const NOWHERE = "https://parts.invalid/";
let python;

const say = (stage) => postMessage({stage});
const unzipped = async (bytes) =>
  new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer());

async function start(packed) {
  say("Unpacking");
  const names = Object.keys(packed);
  const bytes = await Promise.all(names.map((name) => unzipped(packed[name])));
  const parts = Object.fromEntries(names.map((name, i) => [name, bytes[i]]));
  self.fetch = async (url) => {
    const part = parts[String(url).split("/").pop()];
    if (!part) throw new Error(`this page contains no ${url}`);
    const type = String(url).endsWith(".wasm") ? "application/wasm" : "application/octet-stream";
    return new Response(part, {headers: {"Content-Type": type}});
  };
  say("Starting Python");
  // Pyodide would import a module, and therefore refuses classic workers, which it knows by importScripts
  const scripts = [parts["pyodide.asm.js"], ";self.importScripts = undefined;", parts["pyodide.js"]];
  importScripts(URL.createObjectURL(new Blob(scripts, {type: "text/javascript"})));
  python = await loadPyodide({
    indexURL: NOWHERE,
    createPyodideModule: _createPyodideModule,
    lockFileContents: new TextDecoder().decode(parts["lock.json"]),
  });
  say("Loading exact arithmetic");
  python.unpackArchive(parts["flint.whl"], "wheel");
  python.unpackArchive(parts["verifier.zip"], "zip");
  await python.runPythonAsync("import sys; sys.path.insert(0, '.'); import prover");
  postMessage({ready: true});
}

onmessage = async ({data}) => {
  try {
    if (data.parts) await start(data.parts);
    else postMessage({verdict: JSON.parse(python.pyimport("prover").verdict(data.text, say))});
  } catch (error) {
    postMessage({error: String(error)});
  }
};
