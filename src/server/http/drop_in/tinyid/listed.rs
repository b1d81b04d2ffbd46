//! Many numbers in one answer: 100 000 of them have 2 MB. So they are written piece by piece, as the caller reads the answer.

use std::convert::Infallible;

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use futures::stream;

use crate::sequence::Range;

/// How many numbers are written at a time.
const PIECE: usize = 512;

/// The numbers of a range between two texts, separated by commas.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    pub media_type: &'static str,
    pub before: &'static str,
    /// The numbers; `None` if there are none.
    pub range: Option<Range>,
    pub after: &'static str,
}

impl Listed {
    fn numbers(&self) -> impl Iterator<Item = u64> + Send + use<> {
        self.range.into_iter().flat_map(|range| {
            let count = (range.last - range.first) / range.increment + 1;
            (0..count).map(move |step| range.first + step * range.increment)
        })
    }

    /// How many bytes the list has, with the two texts.
    fn length(&self) -> usize {
        let digits = |number: u64| number.ilog10() as usize + 1;
        let numbers: usize = self.numbers().map(|number| digits(number) + 1).sum();
        self.before.len() + numbers.saturating_sub(1) + self.after.len()
    }

    fn pieces(self) -> impl Iterator<Item = String> + Send {
        let (mut left, mut separator) = (self.numbers(), "");
        let numbers = std::iter::from_fn(move || {
            let mut piece = String::new();
            for number in left.by_ref().take(PIECE) {
                piece.push_str(separator);
                piece.push_str(itoa::Buffer::new().format(number));
                separator = ",";
            }
            (!piece.is_empty()).then_some(piece)
        });
        let before = std::iter::once(self.before.to_owned());
        let after = std::iter::once(self.after.to_owned());
        before.chain(numbers).chain(after).filter(|piece| !piece.is_empty())
    }
}

impl IntoResponse for Listed {
    fn into_response(self) -> Response {
        let head = [
            (header::CONTENT_TYPE, self.media_type.to_owned()),
            (header::CONTENT_LENGTH, self.length().to_string()),
        ];
        let pieces = self.pieces().map(Ok::<_, Infallible>);
        (head, Body::from_stream(stream::iter(pieces))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_pieces_and_their_length_is_known_before() {
        for (first, count, increment) in [(1, 1, 1), (9, 3, 1), (5, 2_000, 10), (1, 512, 1)] {
            let numbers: Vec<u64> = (0..count).map(|step| first + step * increment).collect();
            let listed = Listed {
                media_type: "text/plain",
                before: "[",
                range: Some(Range { first, last: first + (count - 1) * increment, increment }),
                after: "]",
            };
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let expected = format!("[{}]", numbers.join(","));
            let pieces: Vec<String> = listed.pieces().collect();
            assert_eq!(pieces.concat(), expected);
            assert_eq!(listed.length(), expected.len());
            assert!(pieces.iter().all(|piece| piece.len() < PIECE * 21));
        }
    }

    #[test]
    fn no_numbers_are_an_empty_list() {
        let listed =
            |before, after| Listed { media_type: "text/plain", before, range: None, after };
        let written = |listed: Listed| (listed.pieces().collect::<String>(), listed.length());
        assert_eq!(written(listed("[", "]")), ("[]".to_owned(), 2));
        assert_eq!(written(listed("", "")), (String::new(), 0));
    }
}
