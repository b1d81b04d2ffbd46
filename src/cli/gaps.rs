//! `ratchet gaps`: how many numbers of a namespace were handed out and skipped, day by day.

use clap::Args;
use ratchet_client::api as v1;
use ratchet_ids::Date;

use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    output,
};
use crate::sequence::DAYS_KEPT;

/// `ratchet gaps`.
#[derive(Debug, Args)]
pub struct GapsArgs {
    /// The namespace, for example "book"
    namespace: String,
    /// How many days back, today included; all that are kept by default
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_KEPT)))]
    days: Option<u32>,
}

impl Ask for GapsArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let client = connection.client()?;
        let gaps = client.gaps(self.namespace, self.days.unwrap_or(0)).await?;
        output::result(connection.json, &gaps, &days_to_table(&gaps.days))
    }
}

/// The moment of which the accounts are.
const AS_OF: &str = "as of each key's last log entry: what was handed out of its last chunk since is accounted for with its next one";

/// A row for each day, and a column for each cause.
fn days_to_table(days: &[v1::GapsOfDay]) -> String {
    let Some(first) = days.first() else {
        return format!("nothing is accounted for, {AS_OF}");
    };
    let mut head = vec!["DAY".to_owned(), "HANDED OUT".to_owned()];
    let causes = first.skipped.iter();
    head.extend(causes.map(|skipped| skipped.cause.to_uppercase().replace('_', " ")));
    let mut rows = vec![head];
    rows.extend(days.iter().map(|day| {
        let mut row = vec![Date::from_days(day.day.into()).to_string(), day.handed_out.to_string()];
        row.extend(day.skipped.iter().map(|skipped| skipped.numbers.to_string()));
        row
    }));
    format!("{}\n{AS_OF}", output::table(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_a_row_and_a_cause_a_column() {
        let skipped = |cause: &str, numbers| v1::Skipped { cause: cause.to_owned(), numbers };
        let days = [v1::GapsOfDay {
            day: 20_513,
            handed_out: 42,
            skipped: vec![skipped("leader_change", 10_000), skipped("fence", 0)],
        }];
        assert_eq!(
            days_to_table(&days).lines().collect::<Vec<_>>(),
            [
                "DAY         HANDED OUT  LEADER CHANGE  FENCE",
                "2026-03-01  42          10000          0",
                AS_OF
            ]
        );
        assert_eq!(days_to_table(&[]), format!("nothing is accounted for, {AS_OF}"));
    }
}
