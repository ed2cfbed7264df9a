// Opens pages in a real browser and reports, as JSON, what a reader would stumble over.
//   node browser.mjs TOOLS CHROMIUM FOLDER PAGE.html…     TOOLS: a folder with node_modules/{playwright-core,axe-core}
// Beside it, FOLDER gets a picture of every page at every width, to be looked at.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";

const [tools, executablePath, folder, ...pages] = process.argv.slice(2);
const require = createRequire(path.resolve(tools, "package.json"));
const { chromium } = require("playwright-core");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf-8");

const VIEWS = [
  { name: "phone", width: 390, colorScheme: "light", media: "screen" },
  { name: "phone-dark", width: 390, colorScheme: "dark", media: "screen" },
  { name: "laptop", width: 1280, colorScheme: "light", media: "screen" },
  { name: "laptop-dark", width: 1280, colorScheme: "dark", media: "screen" },
  { name: "print", width: 673, colorScheme: "light", media: "print" }, // A4 without its margins, at 96 dots an inch
];

// Runs in the page: words beyond the edge or cut off, and words in pictures that leave their frame or touch.
function faults() {
  const found = [];
  const words = (element) => element.textContent.trim().replace(/\s+/g, " ").slice(0, 60);
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) found.push(`the page is ${root.scrollWidth} wide`);
  for (const element of document.querySelectorAll("main *, footer *")) {
    if (element.closest("svg") || ![...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const box = element.getBoundingClientRect();
    const region = element.closest(".table");
    const scrolled = region && region.scrollWidth > region.clientWidth;
    if (box.width && !scrolled && (box.right > root.clientWidth + 1 || box.left < -1)) found.push(`beyond the edge: ${words(element)}`);
    const style = getComputedStyle(element);
    if (style.overflowX === "hidden" && element.scrollWidth > element.clientWidth + 1) found.push(`cut off: ${words(element)}`);
  }
  for (const picture of document.querySelectorAll("figure svg")) {
    const frame = picture.getBoundingClientRect();
    const texts = [...picture.querySelectorAll("text")].map((text) => [words(text), text.getBoundingClientRect()]);
    texts.forEach(([name, box], place) => {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1 || box.bottom > frame.bottom + 2)
        found.push(`leaves its picture: ${name} in ${picture.getAttribute("aria-label")}`);
      for (const [other, there] of texts.slice(place + 1)) {
        const across = Math.min(box.right, there.right) - Math.max(box.left, there.left);
        const down = Math.min(box.bottom, there.bottom) - Math.max(box.top, there.top);
        if (across > 1 && down > 0.3 * Math.min(box.height, there.height))
          found.push(`touch: ${name} and ${other} in ${picture.getAttribute("aria-label")}`);
      }
    });
  }
  return found;
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
const result = {};
for (const page of pages) {
  const name = path.basename(page, ".html");
  for (const { name: view, width, colorScheme, media } of VIEWS) {
    const tab = await browser.newPage({ viewport: { width, height: 900 }, colorScheme, bypassCSP: true });
    const messages = [];
    tab.on("console", (message) => messages.push(message.text()));
    tab.on("dialog", async (dialog) => { messages.push(`dialog: ${dialog.message()}`); await dialog.dismiss(); });
    await tab.emulateMedia({ media });
    await tab.goto(`file://${path.resolve(page)}`);
    await tab.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
    const own = await tab.evaluate(faults);
    await tab.addScriptTag({ content: axe });
    const { violations } = await tab.evaluate(() => window.axe.run());
    const reached = violations.map((one) => `${one.id}: ${one.help} (${one.nodes.length}: ${one.nodes[0].html.slice(0, 120)})`);
    await tab.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = false)));
    await tab.screenshot({ path: path.join(folder, `${name}-${view}.png`), fullPage: true });
    result[`${name} on ${view}`] = { faults: own, accessibility: reached, messages };
    await tab.close();
  }
}
await browser.close();
console.log(JSON.stringify(result));
