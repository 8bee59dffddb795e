//! Whether selectors overlap: of concern where a server has no ids for subscriptions. Pure.

use model::Selector;

/// Whether there may be a topic that both select.
pub(crate) fn overlap(one: &Selector, other: &Selector) -> bool {
    let (one, other) = (one.as_str(), other.as_str());
    // Wildcards in the first level select none of the server's own topics.
    let is_servers = |text: &str| text.starts_with('$');
    let may_begin = is_servers(one) == is_servers(other);
    let (mut levels, mut others) = (one.split('/'), other.split('/'));
    may_begin
        && loop {
            match (levels.next(), others.next()) {
                // "a/#" selects "a" as well.
                (Some("#"), _) | (_, Some("#")) | (None, None) => break true,
                (None, _) | (_, None) => break false,
                (Some(one), Some(other)) if one == other || one == "+" || other == "+" => {}
                _ => break false,
            }
        }
}

#[cfg(test)]
mod tests {
    use model::Limits;

    use super::*;

    #[test]
    fn selectors_overlap_where_a_topic_may_be_selected_by_both() {
        let selector = |text| Selector::parse(text, &Limits::default()).expect("valid");
        for (one, other, expected) in [
            ("a", "a", true),
            ("a", "a/b", false),
            ("a", "a/#", true),
            ("a/+", "+/b/#", true),
            ("a/+/c", "a/b", false),
            ("#", "x/y", true),
            ("#", "$x/y", false),
            ("$x/#", "$x/+", true),
            ("#", "+/$x", true),
        ] {
            let (one, other) = (selector(one), selector(other));
            assert_eq!(overlap(&one, &other), expected, "{one:?} {other:?}");
            assert_eq!(overlap(&other, &one), expected, "{other:?} {one:?}");
        }
    }
}
