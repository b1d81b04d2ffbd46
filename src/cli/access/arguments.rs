//! Grants, quotas and lifetimes of tokens, as they are written.

use std::{str::FromStr, time::Duration};

use ratchet_client::api as v1;

/// The word for all verbs on all namespaces.
const ALL: &str = "all";
/// All namespaces.
const EVERYWHERE: &str = "*";
/// The beginning of the names of verbs in the API.
const PREFIX: &str = "VERB_";
/// The longest lifetime, in minutes: a hundred years.
const MINUTES_MAX: u64 = 36_500 * 24 * 60;

/// The verbs that can be granted.
fn verbs() -> impl Iterator<Item = v1::Verb> {
    (1..).map_while(|number| v1::Verb::try_from(number).ok())
}

fn name(verb: v1::Verb) -> String {
    verb.as_str_name().trim_start_matches(PREFIX).to_lowercase()
}

/// All verbs on all namespaces.
fn all() -> Vec<v1::Grant> {
    verbs().map(|verb| v1::Grant { verb: verb.into(), namespaces: EVERYWHERE.to_owned() }).collect()
}

/// The grants of one argument: "next:order*", or "all".
#[derive(Debug, Clone, PartialEq)]
pub struct Granted(pub Vec<v1::Grant>);

impl FromStr for Granted {
    type Err = String;

    fn from_str(text: &str) -> Result<Granted, String> {
        if text == ALL {
            return Ok(Granted(all()));
        }
        let (verb, namespaces) = text.split_once(':').unwrap_or((text, ""));
        let Some(verb) = verbs().find(|known| name(*known) == verb) else {
            let known: Vec<String> = verbs().map(name).collect();
            return Err(format!("{verb:?} is no verb; give one of {}, or all", known.join(", ")));
        };
        if namespaces.is_empty() {
            let name = name(verb);
            return Err(format!(
                "it names no namespaces; give a name, the beginning of names, or all of them: {name}:orders, {name}:order*, {name}:*"
            ));
        }
        Ok(Granted(vec![v1::Grant { verb: verb.into(), namespaces: namespaces.to_owned() }]))
    }
}

/// All that the arguments grant.
pub fn together(granted: Vec<Granted>) -> Vec<v1::Grant> {
    granted.into_iter().flat_map(|granted| granted.0).collect()
}

/// Whether they grant the same, in whichever order.
pub fn are_alike(one: &[v1::Grant], other: &[v1::Grant]) -> bool {
    let within =
        |one: &[v1::Grant], other: &[v1::Grant]| one.iter().all(|grant| other.contains(grant));
    within(one, other) && within(other, one)
}

/// Grants as they are written.
pub fn shown(grants: &[v1::Grant]) -> String {
    if grants.is_empty() {
        return "nothing".to_owned();
    }
    if are_alike(grants, &all()) {
        return ALL.to_owned();
    }
    let one = |grant: &v1::Grant| match v1::Verb::try_from(grant.verb) {
        Ok(verb) => format!("{}:{}", name(verb), grant.namespaces),
        // One of a later release.
        Err(_) => format!("{}:{}", grant.verb, grant.namespaces),
    };
    grants.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The limits of one argument: "order*:calls=100,numbers=10000,burnt=1000000".
#[derive(Debug, Clone, PartialEq)]
pub struct Limited(pub v1::Quota);

impl FromStr for Limited {
    type Err = String;

    fn from_str(text: &str) -> Result<Limited, String> {
        const FORM: &str =
            "write NAMESPACES:LIMIT,LIMIT as in order*:calls=100,numbers=10000,burnt=1000000";
        // A namespace may have colons in its name.
        let (namespaces, limits) = text.rsplit_once(':').ok_or(FORM)?;
        let mut quota = v1::Quota { namespaces: namespaces.to_owned(), ..v1::Quota::default() };
        if namespaces.is_empty() {
            return Err(format!("it names no namespaces; {FORM}"));
        }
        for limit in limits.split(',') {
            let (what, number) = limit.split_once('=').ok_or(FORM)?;
            let invalid = |error| format!("{number:?} is no limit of {what}: {error}; {FORM}");
            let is_given_twice = match what {
                "calls" => {
                    let number = number.parse().map_err(invalid)?;
                    quota.calls_per_second.replace(number).is_some()
                }
                "numbers" => {
                    let number = number.parse().map_err(invalid)?;
                    quota.numbers_per_second.replace(number).is_some()
                }
                "burnt" => {
                    let number = number.parse().map_err(invalid)?;
                    quota.burnt_per_day.replace(number).is_some()
                }
                _ => return Err(format!("{what:?} is not limited; {FORM}")),
            };
            if is_given_twice {
                return Err(format!("{what} is given twice; {FORM}"));
            }
        }
        Ok(Limited(quota))
    }
}

/// Parses how long a token lasts: "90d", "12h" or "30m".
///
/// # Errors
/// The text, if it is no such number from a minute to a hundred years.
pub fn lifetime(text: &str) -> Result<Duration, String> {
    let unit = text.chars().last();
    let minutes = match unit {
        Some('d') => 24 * 60,
        Some('h') => 60,
        Some('m') => 1,
        Some(_) | None => 0,
    };
    let number = unit.and_then(|unit| text.strip_suffix(unit)).unwrap_or_default();
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse::<u64>().ok().filter(|_| is_number);
    match number.map(|number| number.saturating_mul(minutes)) {
        Some(minutes @ 1..=MINUTES_MAX) => Ok(Duration::from_secs(60 * minutes)),
        _ => Err("give days, hours or minutes, as in 90d, 12h or 30m, up to 36500d".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::written_quotas;

    fn granted(text: &str) -> Vec<v1::Grant> {
        text.parse::<Granted>().expect(text).0
    }

    fn grant(verb: v1::Verb, namespaces: &str) -> v1::Grant {
        v1::Grant { verb: verb.into(), namespaces: namespaces.to_owned() }
    }

    #[test]
    fn a_grant_is_a_verb_on_namespaces_or_all_verbs_on_all_namespaces() {
        assert_eq!(granted("next:order*"), [grant(v1::Verb::Next, "order*")]);
        assert_eq!(granted("namespaces:a:b"), [grant(v1::Verb::Namespaces, "a:b")]);
        let verbs = ["next", "read", "raise", "namespaces", "admin"];
        let each: Vec<_> = verbs.iter().flat_map(|verb| granted(&format!("{verb}:*"))).collect();
        assert_eq!(granted("all"), each);
        let both = together(vec![Granted(granted("read:*")), Granted(granted("next:a"))]);
        assert_eq!(both, [grant(v1::Verb::Read, "*"), grant(v1::Verb::Next, "a")]);
    }

    #[test]
    fn what_is_no_grant_is_refused_with_what_to_write() {
        for verb in ["nxt:*", "", ":", "Next:*", "unspecified:*", "*:*", "all:*", "ALL"] {
            let refused = verb.parse::<Granted>().expect_err(verb);
            assert!(refused.contains("next, read, raise, namespaces, admin, or all"), "{refused}");
        }
        for verb in ["next", "next:"] {
            let refused = verb.parse::<Granted>().expect_err(verb);
            assert!(refused.contains("next:orders, next:order*, next:*"), "{refused}");
        }
    }

    #[test]
    fn grants_are_shown_as_they_are_written() {
        for text in ["next:order*", "read:*", "all"] {
            assert_eq!(shown(&granted(text)), text);
        }
        let some = together(vec![Granted(granted("next:a")), Granted(granted("read:*"))]);
        assert_eq!(shown(&some), "next:a, read:*");
        assert_eq!(shown(&[]), "nothing");
        let later = v1::Grant { verb: 99, namespaces: "a".to_owned() };
        assert_eq!(shown(&[later]), "99:a");
        let mut all = granted("all");
        all.reverse();
        assert_eq!(shown(&all), "all");
        assert!(!are_alike(&all, &all[1..]) && !are_alike(&all[1..], &all));
    }

    #[test]
    fn a_quota_is_limits_on_namespaces_and_is_shown_as_it_is_written() {
        for text in ["order*:calls=100,numbers=10000,burnt=1000000", "*:burnt=1", "a:b:calls=7"] {
            let Limited(quota) = text.parse().expect(text);
            assert_eq!(written_quotas(&[quota]), text);
        }
        let Limited(quota) = "a:b:calls=7".parse().expect("a quota");
        assert_eq!((&*quota.namespaces, quota.calls_per_second), ("a:b", Some(7)));
        assert_eq!(written_quotas(&[]), "none");
        for none in [
            "",
            "order*",
            ":calls=1",
            "*:calls",
            "*:calls=x",
            "*:all=1",
            "*:calls=1,calls=2",
            "*:calls=-1",
        ] {
            let refused = none.parse::<Limited>().expect_err(none);
            assert!(refused.contains("order*:calls=100"), "{refused}");
        }
    }

    #[test]
    fn a_lifetime_is_a_number_of_days_hours_or_minutes() {
        let minutes = |text| lifetime(text).map(|lifetime| lifetime.as_secs() / 60);
        assert_eq!(minutes("30m"), Ok(30));
        assert_eq!(minutes("12h"), Ok(720));
        assert_eq!(minutes("90d"), Ok(129_600));
        assert_eq!(minutes("36500d"), Ok(MINUTES_MAX));
        for none in [
            "",
            "d",
            "90",
            "0d",
            "-1d",
            "+1d",
            "1.5d",
            "36501d",
            "90s",
            "1é",
            "99999999999999999999d",
        ] {
            let refused = minutes(none).expect_err(none);
            assert!(refused.contains("90d, 12h or 30m"), "{refused}");
        }
    }
}
