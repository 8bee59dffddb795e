import { Client } from "@tidegate/client";
import { useTopic } from "@tidegate/client/react";
import { createRoot } from "react-dom/client";
import "./style.css";

interface Quote {
  symbol: string;
  price: number;
  change_percent: number;
}
interface Topics {
  [quotes: `markets/ftse/${string}`]: Quote;
}

const client = new Client<Topics>(import.meta.env.VITE_TIDEGATE ?? "http://localhost:8470");

function Prices() {
  // The newest of each symbol, four times a second at most: faster nobody reads.
  const { topics, state, error } = useTopic(client, "markets/ftse/+", { conflation: "always", intervalMs: 250 });
  const quotes = [...topics.values()].map(({ data }) => data);
  if (error) return <p role="alert">{error.message}</p>;
  return (
    <table className={state}>
      <caption>{state === "live" ? `${quotes.length} symbols, live` : "connecting"}</caption>
      <thead>
        <tr><th>Symbol</th><th>Price</th><th>Change</th></tr>
      </thead>
      <tbody>
        {quotes.sort((one, other) => one.symbol.localeCompare(other.symbol)).map(({ symbol, price, change_percent }) => (
          <tr key={symbol}>
            <th>{symbol}</th>
            <td>{price.toFixed(2)}</td>
            <td className={change_percent < 0 ? "down" : "up"}>{change_percent.toFixed(2)} %</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

createRoot(document.getElementById("root")!).render(<Prices />);
