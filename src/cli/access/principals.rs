//! Principals as text: who they are, and a table of what is granted to them.

use ratchet_client::api as v1;

use super::arguments::shown;
use crate::{
    cli::output::{self, date_and_time},
    node::written_quotas,
};

/// Its name, and the addresses of its callers if they are limited.
pub(super) fn who(principal: &v1::Principal) -> String {
    match &principal.addresses {
        Some(addresses) => format!("{} from {addresses}", principal.name),
        None => principal.name.clone(),
    }
}

/// When it ends, if it can.
fn end(principal: &v1::Principal, now_ms: u64) -> String {
    match principal.expires_ms {
        Some(end) if end <= now_ms => format!("ended {} UTC", date_and_time(end)),
        Some(end) => format!("{} UTC", date_and_time(end)),
        None if principal.id.is_some() => "never".to_owned(),
        None => "-".to_owned(),
    }
}

/// A row for each principal.
pub fn to_table(principals: &[v1::Principal], now_ms: u64) -> String {
    let head = ["NAME", "ID", "GRANTS", "QUOTAS", "EXPIRES", "MADE BY", "MADE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    rows.extend(principals.iter().map(|principal| {
        let made = principal.made_ms.map(|made| format!("{} UTC", date_and_time(made)));
        vec![
            who(principal),
            or_none(principal.id.clone()),
            shown(&principal.grants),
            written_quotas(&principal.quotas),
            end(principal, now_ms),
            or_none(principal.made_by.clone()),
            or_none(made),
        ]
    }));
    output::table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::access::arguments::{Limited, together};

    #[test]
    fn principals_are_rows_with_what_is_granted_to_them() {
        let anonymous = v1::Principal {
            name: "anonymous".to_owned(),
            addresses: Some("10.1.0.0/16".to_owned()),
            ..v1::Principal::default()
        };
        let token = v1::Principal {
            name: "billing".to_owned(),
            id: Some("ba7816bf8f01".to_owned()),
            grants: together(["next:order*", "read:*"].map(|one| one.parse().expect(one)).into()),
            quotas: vec!["*:calls=9".parse::<Limited>().expect("a quota").0],
            expires_ms: Some(1_772_373_909_999),
            made_by: Some("admin".to_owned()),
            made_ms: Some(0),
            ..v1::Principal::default()
        };
        let forever = v1::Principal { expires_ms: None, quotas: Vec::new(), ..token.clone() };
        let table = to_table(&[anonymous, token.clone(), forever], 0);
        let lines = [
            "NAME                        ID            GRANTS               QUOTAS     EXPIRES                  MADE BY  MADE",
            "anonymous from 10.1.0.0/16  -             nothing              none       -                        -        -",
            "billing                     ba7816bf8f01  next:order*, read:*  *:calls=9  2026-03-01 14:05:09 UTC  admin    1970-01-01 00:00:00 UTC",
            "billing                     ba7816bf8f01  next:order*, read:*  none       never                    admin    1970-01-01 00:00:00 UTC",
        ];
        assert_eq!(table.lines().collect::<Vec<_>>(), lines);
        assert_eq!(end(&token, u64::MAX), "ended 2026-03-01 14:05:09 UTC");
    }
}
