// Writes a line of JSON for each test to the file SUITES_REPORT, as soon as it is known. A
// test that is expected to fail, and fails, has passed.
const fs = require('node:fs');
const path = require('node:path');

module.exports = class {
  onBegin(config, suite) {
    if (!process.env.SUITES_LIST)
      return;
    for (const test of suite.allTests())
      this.write(test, 'passed');
  }
  onTestEnd(test, result) {
    const verdict = result.status === 'skipped' ? 'skipped' : result.status === test.expectedStatus ? 'passed' : 'failed';
    this.write(test, verdict, result.errors.map(error => error.stack ?? error.message ?? error.value).join('\n').slice(0, 4000));
  }
  onError(error) {
    console.error(error.stack ?? error.message ?? error.value);
  }
  write(test, verdict, error) {
    const [, , , ...titles] = test.titlePath();
    const name = [path.relative(process.env.SUITES_ROOT, test.location.file), ...titles].join(' › ');
    fs.appendFileSync(process.env.SUITES_REPORT, JSON.stringify({name, verdict, error: verdict === 'failed' ? error : undefined}) + '\n');
  }
  printsToStdio() { return true; }
};
