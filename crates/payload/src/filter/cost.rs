//! The maximum cost of a filter, computed from its text before it is ever evaluated.
//!
//! Each operation is given the most that its operands may hold, in whole payloads and in bytes beside. The bytes that
//! it copies or goes through are added up. A filter therefore goes through a payload a few times at most, whatever its content.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};
use model::Headers;

/// How often a filter may go through a payload.
const PAYLOADS_MAX: usize = 16;
/// Bytes beside payloads, such as names of topics, that a filter may go through.
const BYTES_MAX: usize = 64 << 10;
/// The most that a variable other than the payload is expected to hold.
const NAME_BYTES: usize = 512;

/// An amount of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    payloads: usize,
    bytes: usize,
}

impl Amount {
    const SCALAR: Self = Self { payloads: 0, bytes: 8 };
    const PAYLOAD: Self = Self { payloads: 1, bytes: 0 };

    fn plus(self, other: Self) -> Self {
        let payloads = self.payloads.saturating_add(other.payloads);
        Self { payloads, bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// The most that both may hold, if they are the same.
    fn common(self, other: Self) -> Self {
        match (self.payloads, other.payloads) {
            (0, 1..) => self,
            (1.., 0) => other,
            _ => Self {
                payloads: self.payloads.min(other.payloads),
                bytes: self.bytes.min(other.bytes),
            },
        }
    }

    fn larger(self, other: Self) -> Self {
        let payloads = self.payloads.max(other.payloads);
        Self { payloads, bytes: self.bytes.max(other.bytes) }
    }
}

/// The value of an expression.
#[derive(Clone, Copy, Debug)]
struct Made {
    holds: Amount,
    /// Whether it can only be a number, a truth value or no value.
    is_scalar: bool,
}

impl Made {
    const SCALAR: Self = Self { holds: Amount::SCALAR, is_scalar: true };

    fn of(holds: Amount) -> Self {
        Self { holds, is_scalar: false }
    }
}

/// Why an expression would cost too much; `None` if it would not.
pub(super) fn too_much(expression: &IdedExpr) -> Option<String> {
    let mut total = Amount::default();
    if let Err(why) = add_up(expression, 0, &mut total) {
        return Some(why.to_owned());
    }
    (total.payloads > PAYLOADS_MAX || total.bytes > BYTES_MAX).then(|| {
        format!(
            "its operators may go through the payload {} times, and a filter may {PAYLOADS_MAX} times; use \
             fewer of `+`, `<`, `in` and `contains` on members of it",
            total.payloads
        )
    })
}

/// Adds what an expression costs to `total`.
fn add_up(expression: &IdedExpr, depth: usize, total: &mut Amount) -> Result<Made, &'static str> {
    const DEPTH_MAX: usize = 200;
    if depth > DEPTH_MAX {
        return Err("it has too many operators one after the other");
    }
    let depth = depth + 1;
    match &expression.expr {
        Expr::Comprehension(_) => Err("it loops over a list, which could take any time"),
        Expr::Unspecified | Expr::Literal(LiteralValue::Null) => Ok(Made::SCALAR),
        Expr::Literal(LiteralValue::String(text)) => Ok(literal(text.inner().len())),
        Expr::Literal(LiteralValue::Bytes(bytes)) => Ok(literal(bytes.inner().len())),
        Expr::Literal(_) => Ok(Made::SCALAR),
        Expr::Ident(name) if name == "data" => Ok(Made::of(Amount::PAYLOAD)),
        Expr::Ident(name) if name == "headers" => Ok(literal(Headers::BYTES_MAX)),
        Expr::Ident(_) => Ok(literal(NAME_BYTES)),
        Expr::Select(select) => {
            let operand = add_up(&select.operand, depth, total)?;
            Ok(if select.test { Made::SCALAR } else { operand })
        }
        Expr::List(list) => gather(list.elements.iter(), depth, total),
        Expr::Map(map) => {
            gather(map.entries.iter().flat_map(|entry| parts_of(&entry.expr)), depth, total)
        }
        Expr::Struct(it) => {
            gather(it.entries.iter().flat_map(|entry| parts_of(&entry.expr)), depth, total)
        }
        Expr::Call(call) => add_up_call(call, depth, total),
    }
}

fn literal(bytes: usize) -> Made {
    Made::of(Amount { payloads: 0, bytes })
}

fn parts_of(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}

/// A value made of several parts by copying them.
fn gather<'a>(
    parts: impl Iterator<Item = &'a IdedExpr>,
    depth: usize,
    total: &mut Amount,
) -> Result<Made, &'static str> {
    let mut holds = Amount::default();
    for part in parts {
        holds = holds.plus(add_up(part, depth, total)?.holds);
    }
    *total = total.plus(holds);
    Ok(Made::of(holds))
}

fn add_up_call(call: &CallExpr, depth: usize, total: &mut Amount) -> Result<Made, &'static str> {
    let operands = call.target.as_deref().into_iter().chain(&call.args);
    let operands = operands.map(|it| add_up(it, depth, total)).collect::<Result<Vec<Made>, _>>()?;
    let all = operands.iter().fold(Amount::default(), |sum, operand| sum.plus(operand.holds));
    let is_any_scalar = operands.iter().any(|operand| operand.is_scalar);
    let (cost, made) = match (call.func_name.as_str(), &operands[..]) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT, _) => {
            (Amount::default(), Made::SCALAR)
        }
        (operators::CONDITIONAL, [_, one, other]) => {
            let is_scalar = one.is_scalar && other.is_scalar;
            (Amount::default(), Made { holds: one.holds.larger(other.holds), is_scalar })
        }
        (operators::EQUALS | operators::NOT_EQUALS | "startsWith" | "endsWith", [one, other]) => {
            (one.holds.common(other.holds), Made::SCALAR)
        }
        // Nothing but a number is added to a number. What cannot be added is copied once, into the error.
        (operators::ADD, [_, _]) if is_any_scalar => (all, Made::SCALAR),
        (operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO, _)
        | (operators::NEGATE, _)
        | (operators::LESS | operators::LESS_EQUALS, _)
        | (operators::GREATER | operators::GREATER_EQUALS, _) => (all, Made::SCALAR),
        (operators::IN, [_, list]) if matches!(call.args[1].expr, Expr::List(_)) => {
            (list.holds, Made::SCALAR)
        }
        (operators::IN | "contains" | "size" | "int" | "uint" | "double" | "bool", _) => {
            (all, Made::SCALAR)
        }
        (operators::INDEX, [from, key]) => (key.holds, Made::of(from.holds)),
        _ => (all, Made::of(all)),
    };
    *total = total.plus(cost);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use cel::Program;

    use super::*;

    fn cost(text: &str) -> Amount {
        let program = Program::compile(text).expect("an expression");
        let mut total = Amount::default();
        add_up(program.expression(), 0, &mut total).expect("no loop");
        total
    }

    fn is_too_much(text: &str) -> bool {
        too_much(Program::compile(text).expect("an expression").expression()).is_some()
    }

    #[test]
    fn texts_that_are_put_together_again_and_again_are_refused() {
        let chain = |count: usize| vec!["data"; count].join("+") + " == ''";
        // What each `+` copies: 2, 3, 4, ... payloads.
        assert_eq!(cost(&chain(4)).payloads, 2 + 3 + 4);
        assert!(!is_too_much(&chain(4)) && is_too_much(&chain(8)) && is_too_much(&chain(200)));
        let twice = |text: &str| format!("({text})+({text})");
        assert!(is_too_much(&(twice(&twice(&twice(&twice("data")))) + " == ''")));
        assert!(is_too_much(&(["[data, data]"; 10].join("+") + " == []")));
        assert!(is_too_much(&["data.a < data.b"; 17].join(" || ")));
        assert!(is_too_much(&["data.contains('x')"; 17].join(" || ")));
        assert!(is_too_much(&(["topic"; 40].join("+") + " == ''")));
    }

    #[test]
    fn useful_filters_cost_little() {
        for (text, payloads) in [
            ("data.price > 100.0 && data.price < 200.0", 2),
            ("data.symbol == 'ABC' || data.symbol in ['X', 'Y', 'Z']", 0),
            ("'fast' in data.tags", 1),
            ("topic.startsWith('prices/') && data.name.startsWith('A')", 0),
            ("data.price * data.size + 5 > 1000", 2),
            ("(data.bid + data.ask) / 2.0 > 10.0", 4),
            ("has(data.absent) || size(data.list) > 3", 1),
            ("data.text.contains('storm')", 1),
        ] {
            assert_eq!(cost(text).payloads, payloads, "{text}");
            assert!(!is_too_much(text), "{text}");
        }
        assert!(!is_too_much(&["data.f == 1"; 80].join(" || ")));
    }
}
