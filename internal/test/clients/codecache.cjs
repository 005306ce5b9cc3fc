// Keeps the compiled code of large modules between runs: node --require codecache.cjs SCRIPT.
//
// The tests start a client some two hundred times. Most of the processor time of a start
// of Playwright went into compiling the same files. Newer versions of Node.js do this
// themselves (NODE_COMPILE_CACHE); version 20 does not.
const fs = require('node:fs');
const { createRequire, Module } = require('node:module');
const path = require('node:path');
const vm = require('node:vm');

const dir = path.join(__dirname, 'node_modules', '.cache', `code-${process.version}`);
const large = 100_000;
const compile = Module.prototype._compile;
const compiled = []; // what is not in the cache yet: [file, script]

Module.prototype._compile = function (content, filename, ...rest) {
  if (content.length < large) return compile.call(this, content, filename, ...rest);
  const { size, mtimeMs } = fs.statSync(filename);
  const file = path.join(dir, `${encodeURIComponent(path.relative(__dirname, filename))}-${size}-${mtimeMs}`);
  const cachedData = fs.existsSync(file) ? fs.readFileSync(file) : undefined;
  // V8 refuses what another version of it, or one with other flags, has compiled.
  const script = new vm.Script(Module.wrap(content), {
    filename, cachedData, importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  if (!cachedData || script.cachedDataRejected) compiled.push([file, script]);
  script.runInThisContext().call(this.exports, this.exports, createRequire(filename), this, filename, path.dirname(filename));
};

// At the end, since the functions that ran are compiled then, too.
process.on('exit', () => {
  for (const [file, script] of compiled) {
    try {
      fs.mkdirSync(dir, { recursive: true });
      fs.writeFileSync(`${file}.${process.pid}`, script.createCachedData());
      fs.renameSync(`${file}.${process.pid}`, file); // other clients may be reading it
    } catch {} // A folder that cannot be written to costs time only.
  }
});
