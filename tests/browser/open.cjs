// Opens pages in one Chromium without a window, one after the other, for whoever
// asks over HTTP on loopback, and answers with what is to be read on them.
//
//   node open.cjs PORT CHROMIUM
//
// POST / with {"url", "steps", "until", "within", "storage", "screenshot", "height",
// "left", "top"} goes to the page, does the steps there, and waits until all texts of
// "until" can be read on it; it loads the page again from time to time, as somebody
// does who waits for something. A step is {"click": text}, {"into": label, "type":
// text}, {"see": text} or {"press": key}. The answer is {"text", "missing",
// "outside"}: what can be read, what of "until" never came, and which addresses
// beyond this machine the page asked for.
'use strict';

const http = require('node:http');
const { chromium } = require('playwright-core');

const [port, executablePath] = process.argv.slice(2);

// How long a page may show something else before it is loaded again.
const patience = 8000;

// Pages are as wide as this, and pictures leave out what is left of "left" and above
// "top": menus that are the same on every page.
const width = 1536;

function staysHere(address) {
  const url = new URL(address);
  if (!['http:', 'https:', 'ws:', 'wss:'].includes(url.protocol)) {
    return true; // data:, blob:, about: ask nobody
  }
  return ['127.0.0.1', 'localhost', '[::1]'].includes(url.hostname);
}

// What can be read on the page, that in frames included. The frames of Markdown run
// no scripts of their own, so the page that they are in reads them.
function legible() {
  const texts = [document.body.innerText];
  for (const frame of document.querySelectorAll('iframe')) {
    const inner = frame.contentDocument;
    if (inner && inner.body && frame.getClientRects().length > 0) {
      texts.push(inner.body.innerText);
    }
  }
  return texts.join('\n');
}

// go leads to an address as a person would: by a link where the page that is shown
// belongs to the same site, which then loads only what is new.
async function go(page, address) {
  const before = page.url();
  if (!before.startsWith(new URL(address).origin + '/') || before === address) {
    await page.goto(address);
    return;
  }
  await page.evaluate((href) => {
    const link = document.createElement('a');
    link.href = href;
    document.body.append(link);
    link.click();
    link.remove();
  }, address);
  await page.waitForURL((url) => url.href !== before);
}

async function act(page, { click, into, type, see, press }) {
  const showing = (text) => page.getByRole('button', { name: text, exact: true })
    .or(page.getByText(text, { exact: true })).filter({ visible: true }).first();
  if (click) {
    await showing(click).click();
  } else if (into) {
    await page.getByRole('textbox', { name: into, exact: true }).filter({ visible: true }).first().fill(type);
  } else if (see) {
    await showing(see).waitFor();
  } else {
    await page.keyboard.press(press);
  }
}

async function read(page, outside, asked) {
  page.setDefaultTimeout(asked.within);
  await page.setViewportSize({ width, height: asked.height || 800 });
  const end = Date.now() + asked.within;
  let text = '';
  let missing = asked.until;
  if (asked.storage) {
    await page.goto(asked.url);
    await page.evaluate((storage) => {
      for (const [key, value] of Object.entries(storage)) {
        window.localStorage.setItem(key, value);
      }
    }, asked.storage);
    await page.reload();
  } else {
    await go(page, asked.url);
  }
  for (const step of asked.steps || []) {
    await act(page, step);
  }
  for (;;) {
    const again = Math.min(end, Date.now() + patience);
    do {
      // While another page is being loaded there is nothing to read.
      text = await page.evaluate(legible).catch(() => '');
      missing = asked.until.filter((wanted) => !text.includes(wanted));
      if (missing.length > 0) {
        await page.waitForTimeout(100);
      }
    } while (missing.length > 0 && Date.now() < again);
    if (missing.length === 0 || Date.now() >= end) {
      break;
    }
    await page.reload();
  }
  if (asked.screenshot && missing.length === 0) {
    const { left = 0, top = 0 } = asked;
    // A link that was followed leaves a frame around what it led to.
    await page.evaluate(() => document.activeElement?.blur());
    await page.screenshot({
      path: asked.screenshot, animations: 'disabled', caret: 'hide',
      clip: { x: left, y: top, width: width - left, height: (asked.height || 800) - top },
    });
  }
  return { text, missing, outside: outside.splice(0) };
}

async function main() {
  const browser = await chromium.launch({
    executablePath,
    // Root has no sandbox to offer, and only pages of this machine are opened; no
    // name leads anywhere else. Grey letters make smaller pictures.
    args: ['--no-sandbox', '--disable-lcd-text', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
  const context = await browser.newContext({
    locale: 'en-GB', timezoneId: 'UTC', colorScheme: 'light', serviceWorkers: 'block',
  });
  const page = await context.newPage();
  const outside = [];
  const note = (address) => staysHere(address) || outside.push(address);
  page.on('request', (request) => note(request.url()));
  page.on('websocket', (socket) => note(socket.url()));
  const server = http.createServer(async (request, response) => {
    let status = 200;
    let answer = {};
    try {
      if (request.method === 'POST') {
        const chunks = [];
        for await (const chunk of request) {
          chunks.push(chunk);
        }
        answer = await read(page, outside, JSON.parse(Buffer.concat(chunks).toString()));
      }
    } catch (error) {
      status = 500;
      answer = { error: String(error.stack || error) };
    }
    response.writeHead(status, { 'Content-Type': 'application/json' });
    response.end(JSON.stringify(answer));
  });
  const stop = async () => {
    server.close();
    await browser.close();
    process.exit(0);
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  server.listen(Number(port), '127.0.0.1');
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
