// A WebSocket class that notes what goes over it, and may change what comes.
import WebSocket from "ws";

import type { WebSocketClass } from "../src/index.js";

type Noted = { readonly type: string } & Record<string, any>;

export class Watch {
  /** The types of all events, in order. */
  readonly types: string[] = [];
  readonly commands: Noted[] = [];
  readonly WebSocket: WebSocketClass;

  /** `change` makes what arrives of what came. */
  constructor(change: (event: Noted) => Noted = (event) => event) {
    const { types, commands } = this;
    const isPlain = change.length === 0;
    this.WebSocket = class extends WebSocket {
      constructor(url: string, subprotocols: string[]) {
        super(url, subprotocols);
        const hear = this.emit.bind(this);
        this.emit = (name: string, ...given: any[]): boolean => {
          if (name !== "message") return hear(name, ...given);
          const decoded = JSON.parse(String(given[0])) as Noted | Noted[];
          const events = [decoded].flat().map(change);
          types.push(...events.map(({ type }) => type));
          const isChanged = !isPlain && JSON.stringify(events) !== JSON.stringify([decoded].flat());
          return hear(name, isChanged ? Buffer.from(JSON.stringify(events)) : given[0], given[1]);
        };
      }

      override send(text: any): void {
        commands.push(JSON.parse(text) as Noted);
        super.send(text);
      }
    } as unknown as WebSocketClass;
  }

  /** How many events of a type came. */
  count(type: string): number {
    return this.types.filter((each) => each === type).length;
  }

  /** How many of `other` came after the first and before the last of `type`. */
  between(type: string, other: string): number {
    const within = this.types.slice(this.types.indexOf(type), this.types.lastIndexOf(type));
    return within.filter((each) => each === other).length;
  }

  /** The commands of a type that were sent. */
  asked(type: string): Noted[] {
    return this.commands.filter((command) => command.type === type);
  }
}
