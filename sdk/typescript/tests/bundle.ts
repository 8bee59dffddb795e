// Makes one file of a module that imports the built package, as an application's bundler does.
import { rolldown } from "rolldown";
import { compile } from "svelte/compiler";

export interface BundleOptions {
  readonly minify?: boolean;
  /** Whether React is taken in; otherwise its imports stay. */
  readonly withReact?: boolean;
  /** Whether what is loaded later is a file of its own, which is not answered. Otherwise it is in there. */
  readonly isSplit?: boolean;
  /** Further modules, by the name that they are imported with. */
  readonly modules?: Record<string, string>;
}

/**
 * The code of an ES module that does what `code` does, without what it loads later. `.svelte` modules are compiled,
 * `.tsx` is the entry's kind.
 */
export async function bundle(code: string, options: BundleOptions = {}): Promise<string> {
  const modules: Record<string, string> = { "entry.tsx": code, ...options.modules };
  const bundled = await rolldown({
    input: "entry.tsx",
    cwd: new URL("..", import.meta.url).pathname,
    external: options.withReact ? [] : [/^react/],
    transform: { define: { "process.env.NODE_ENV": '"production"' }, jsx: { runtime: "automatic" } },
    resolve: { conditionNames: ["browser", "import", "default"] },
    plugins: [
      {
        name: "given",
        resolveId: (id) => (id.replace("./", "") in modules ? `${process.cwd()}/${id.replace("./", "")}` : null),
        load: (id) => modules[id.slice(process.cwd().length + 1)] ?? null,
        transform: (source, id) =>
          id.endsWith(".svelte") ? { code: compile(source, { generate: "client" }).js.code, moduleType: "js" } : null,
      },
    ],
  });
  const { output } = await bundled.generate({ format: "esm", minify: options.minify ?? false, codeSplitting: options.isSplit ?? false });
  return output[0].code;
}
