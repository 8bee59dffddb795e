// The README's examples, as a reader would copy them.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");

/** Where examples are written to be checked and run: inside the package, so that its own name leads to it. */
export const directory = new URL("../.readme/", import.meta.url).pathname;

/** The code blocks of a language, in order. */
export function examples(language: string): string[] {
  const blocks = readme.matchAll(new RegExp("^```" + language + "\\n(.*?)^```$", "gms"));
  return [...blocks].map(([, code]) => code!);
}

/** An example with what the ones before it have said already: a client. */
export function whole(example: string): string {
  if (/new (Client|Publisher)/.test(example)) return example;
  return `import { Client } from "@tidegate/client";\nconst client = new Client("ws://localhost:8470");\n${example}`;
}

/** What an example says that it prints. */
export function prints(example: string): string[] {
  return [...example.matchAll(/\/\/ prints: (.*)$/gm)].map(([, line]) => line!);
}

/** Writes files into the empty directory. */
export function write(files: Record<string, string>): void {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory);
  for (const [name, text] of Object.entries(files)) writeFileSync(directory + name, text);
}
