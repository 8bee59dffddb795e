//! A synthetic market: 100 symbols, each a geometric random walk, 10 updates a second each.
//!
//! The prices are invented. Each update multiplies a price by `1 + g × 0.0005`, where `g` is a sum
//! of four uniform numbers in [-0.5, 0.5] times √3 (close to a standard normal).

use serde_json::json;

use super::Reading;

/// The symbols are those of large companies, for looks only.
const SYMBOLS: [&str; 100] = [
    "AAF", "AAL", "ABF", "ADM", "AHT", "ANTO", "AUTO", "AV", "AZN", "BA", "BARC", "BATS", "BDEV",
    "BEZ", "BKG", "BLND", "BME", "BNZL", "BP", "BRBY", "BTA", "CCH", "CNA", "CPG", "CRDA", "CRH",
    "CTEC", "DCC", "DGE", "DPLM", "EDV", "ENT", "EXPN", "EZJ", "FCIT", "FLTR", "FRAS", "FRES",
    "GLEN", "GSK", "HIK", "HL", "HLMA", "HLN", "HSBA", "HWDN", "IAG", "ICP", "IHG", "III", "IMB",
    "IMI", "INF", "ITRK", "JD", "KGF", "LAND", "LGEN", "LLOY", "LMP", "LSEG", "MKS", "MNDI", "MNG",
    "MRO", "NG", "NWG", "NXT", "PHNX", "PRU", "PSH", "PSN", "PSON", "REL", "RIO", "RKT", "RMV",
    "RR", "RS1", "RTO", "SBRY", "SDR", "SGE", "SGRO", "SHEL", "SMDS", "SMIN", "SMT", "SN", "SPX",
    "SSE", "STAN", "STJ", "SVT", "TSCO", "TW", "ULVR", "UU", "VOD", "WTB",
];
/// Every symbol moves once in so many steps.
const STEPS_PER_ROUND: usize = 10;

struct Symbol {
    price: f64,
    opened_at: f64,
    volume: u64,
}

pub(super) struct Market {
    symbols: Vec<Symbol>,
    random: u64,
}

impl Market {
    pub(super) fn new(seed: u64) -> Self {
        let mut market = Self { symbols: Vec::new(), random: seed | 1 };
        for _ in SYMBOLS {
            let price = 50.0 + 4000.0 * (market.uniform() + 0.5);
            market.symbols.push(Symbol { price, opened_at: price, volume: 0 });
        }
        market
    }

    /// Moves every tenth symbol, starting with another one in each step.
    pub(super) fn step(&mut self, step: u64, time_ms: u64) -> Vec<Reading> {
        let first = step as usize % STEPS_PER_ROUND;
        (first..SYMBOLS.len())
            .step_by(STEPS_PER_ROUND)
            .map(|index| self.move_symbol(index, time_ms))
            .collect()
    }

    fn move_symbol(&mut self, index: usize, time_ms: u64) -> Reading {
        let normal = (0..4).map(|_| self.uniform()).sum::<f64>() * 3f64.sqrt();
        let traded = ((self.uniform() + 0.5) * 500.0) as u64;
        let symbol = &mut self.symbols[index];
        symbol.price *= 1.0 + normal * 0.0005;
        symbol.volume += traded;
        let cents = |number: f64| (number * 100.0).round() / 100.0;
        let value = json!({
            "symbol": SYMBOLS[index],
            "price": cents(symbol.price),
            "change_percent": cents((symbol.price / symbol.opened_at - 1.0) * 100.0),
            "volume": symbol.volume,
            "time_ms": time_ms,
        });
        (format!("markets/ftse/{}", SYMBOLS[index]), value)
    }

    /// A number in [-0.5, 0.5).
    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_hundred_symbols_move_ten_times_a_second_each() {
        let mut market = Market::new(1);
        let mut counts: HashMap<String, u32> = HashMap::new();
        for step in 0..100 {
            for (topic, value) in market.step(step, 0) {
                assert!(value["price"].as_f64().is_some_and(|price| price > 0.0), "{value}");
                *counts.entry(topic).or_default() += 1;
            }
        }
        assert_eq!(counts.len(), 100);
        assert!(counts.values().all(|count| *count == 10), "{counts:?}");
    }
}
