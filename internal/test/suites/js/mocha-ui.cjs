// Mocha's bdd interface, for the suites that use Mocha. It keeps only the tests whose names
// stand in the file SUITES_TESTS (a list in JSON), if there is one, and knows Puppeteer's
// additions to the interface: what only helps to find the cause of a flaky test runs once.
const fs = require('node:fs');
const path = require('node:path');
const Mocha = require(require.resolve('mocha', {paths: [process.cwd()]}));

const root = process.env.SUITES_ROOT;
const chosen = process.env.SUITES_TESTS && new Set(JSON.parse(fs.readFileSync(process.env.SUITES_TESTS, 'utf8')));

exports = module.exports = suite => {
  Mocha.interfaces.bdd(suite);
  suite.on(Mocha.Suite.constants.EVENT_FILE_PRE_REQUIRE, (context, file) => {
    const define = context.it;
    const it = (title, body) => {
      const test = define(title, body);
      if (chosen && !chosen.has(exports.nameOf(test, file)))
        test.parent.tests.splice(test.parent.tests.indexOf(test), 1);
      return test;
    };
    it.only = it;
    it.skip = title => it(title);
    it.deflake = it.deflakeOnly = (repeats, title, body) => it(title, body);
    context.it = context.specify = it;
    context.xit = context.xspecify = it.skip;
    context.describe.withDebugLogs = context.describe;
  });
};

exports.nameOf = (test, file) => `${path.relative(root, file)} › ${test.titlePath().join(' › ')}`;
exports.description = 'bdd, with chosen tests only';
