// Lets tests that are written in TypeScript run, each file as it is required. Functions are
// left as they are: what other tools add to keep their names is not there in a page, where
// these tests have functions evaluated.
const fs = require('node:fs');
const Module = require('node:module');
const path = require('node:path');
const {transformSync} = require(require.resolve('esbuild', {paths: [process.env.SUITES_ROOT]}));

process.setSourceMapsEnabled(true);

Module._extensions['.ts'] = (module, file) => {
  const {code} = transformSync(fs.readFileSync(file, 'utf8'), {loader: 'ts', format: 'cjs', target: 'node20', sourcemap: 'inline', sourcefile: file});
  module._compile(code, file);
};

// Imports name the file that a compiler would have made.
const resolve = Module._resolveFilename;
Module._resolveFilename = (request, parent, ...rest) => {
  if (/^\.\.?\/.*\.js$/.test(request) && parent?.filename?.endsWith('.ts')) {
    const source = path.resolve(path.dirname(parent.filename), request.replace(/js$/, 'ts'));
    if (fs.existsSync(source))
      return source;
  }
  return resolve(request, parent, ...rest);
};
