// Writes a line of JSON for each test to the file SUITES_REPORT, as soon as it is known:
// what ends the process later takes none of them away.
const fs = require('node:fs');
const {nameOf} = require('./mocha-ui.cjs');

module.exports = class {
  constructor(runner) {
    const write = (test, verdict, error) => {
      const line = {name: nameOf(test, test.file ?? test.parent.file), verdict, error: error && String(error.stack ?? error).slice(0, 4000)};
      fs.appendFileSync(process.env.SUITES_REPORT, JSON.stringify(line) + '\n');
    };
    runner.on('pass', test => write(test, 'passed'));
    runner.on('pending', test => write(test, 'skipped'));
    runner.on('fail', (test, error) => {
      // A hook fails the test that it was run for.
      const of = test.type === 'hook' ? test.ctx?.currentTest : test;
      if (of)
        write(of, 'failed', error);
      console.error(test.fullTitle(), error);
    });
  }
};
