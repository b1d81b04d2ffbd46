//! Checks that the ids of one maker, or of one key, rise. Pure.

/// The values that one call took of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When it was asked for, in nanoseconds.
    pub invoked_ns: u64,
    /// When it arrived.
    pub returned_ns: u64,
    /// The least.
    pub first: u128,
    /// The greatest.
    pub last: u128,
}

/// Two calls that are in disorder: the second one began after the first one had ended, and does not lie above it. `None` if
/// there are none. If a series `may_repeat`, equal values are in order.
///
/// In O(n log n): a call is compared with the greatest value of all that had ended when it began.
pub fn disorder(spans: &[Span], may_repeat: bool) -> Option<(Span, Span)> {
    let mut begun: Vec<&Span> = spans.iter().collect();
    begun.sort_by_key(|span| span.invoked_ns);
    let mut ended = begun.clone();
    ended.sort_by_key(|span| span.returned_ns);
    let mut ended = ended.into_iter().peekable();
    let mut greatest: Option<&Span> = None;
    for span in begun {
        while let Some(before) = ended.next_if(|before| before.returned_ns < span.invoked_ns) {
            if greatest.is_none_or(|greatest| greatest.last < before.last) {
                greatest = Some(before);
            }
        }
        if let Some(before) = greatest
            && (span.first < before.last || (span.first == before.last && !may_repeat))
        {
            return Some((*before, *span));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(invoked_ns: u64, returned_ns: u64, first: u128, last: u128) -> Span {
        Span { invoked_ns, returned_ns, first, last }
    }

    #[test]
    fn a_call_that_began_after_another_ended_lies_above_it() {
        let rising = [span(0, 5, 1, 3), span(6, 9, 4, 4), span(20, 21, 5, 9)];
        assert_eq!(disorder(&rising, false), None);
        let (early, late) = (span(0, 5, 1, 3), span(6, 9, 2, 7));
        assert_eq!(disorder(&[late, early], false), Some((early, late)));
    }

    #[test]
    fn calls_that_overlap_may_have_any_order() {
        let overlapping = [span(0, 5, 8, 9), span(5, 9, 1, 2), span(4, 30, 3, 4)];
        assert_eq!(disorder(&overlapping, false), None);
    }

    #[test]
    fn the_greatest_of_all_that_ended_counts_and_not_the_last_one() {
        let all =
            [span(0, 9, 50, 60), span(0, 10, 1, 2), span(11, 12, 20, 20), span(13, 14, 61, 61)];
        assert_eq!(disorder(&all, false), Some((all[0], all[2])));
    }

    #[test]
    fn equal_values_are_in_order_where_they_may_repeat_and_smaller_ones_are_not() {
        let equal = [span(0, 1, 7, 7), span(2, 3, 7, 7)];
        assert_eq!(disorder(&equal, true), None);
        assert!(disorder(&equal, false).is_some());
        assert!(disorder(&[span(0, 1, 7, 7), span(2, 3, 6, 6)], true).is_some());
    }
}
