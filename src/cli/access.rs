//! `ratchet token`, `ratchet grant` and `ratchet quota`: the principals, their grants and their quotas. `arguments.rs` reads
//! grants and quotas, and `principals.rs` prints them with the principals that have them.
//!
//! A token is drawn here, and the cluster gets its SHA-256 alone. With a file, the token is on the disk before the cluster is
//! asked, so that the command can be repeated if the answer is lost.

mod arguments;
pub(super) mod principals;

use std::{path::PathBuf, slice, time::Duration};

use clap::{Args, Subcommand};
use ratchet_client::{Client, Code, Error, api as v1};
use serde::Serialize;

use self::{
    arguments::{Granted, Limited, are_alike, lifetime, shown, together},
    principals::{to_table, who},
};
use super::{
    command_error::CommandError,
    connection::{Ask, Connection},
    flags::Flags,
    output,
    token_file::SecretToken,
};
use crate::{
    clock::{BootClock, Clock, whole_ms},
    node::written_quotas,
};

/// How much later a token that was created before may end, in milliseconds, if its creation is asked for again: the end counts
/// from when the command is run.
const REPEATED_WITHIN_MS: u64 = 3_600_000;

/// `ratchet token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    command: AccessCommand,
}

#[derive(Debug, Subcommand)]
enum AccessCommand {
    /// Create a token, and print it
    ///
    /// The token is printed alone, this once: the cluster stores its SHA-256, and nobody can find it out again. With --file it
    /// is written to a file before the cluster is asked, and the principal is printed in its place.
    Create(Create),
    /// List all principals with their grants: anonymous, which is everybody, clients with certificates, and tokens
    List,
    /// Make a token worth nothing
    Revoke(Flags<v1::RevokeTokenRequest>),
}

#[derive(Debug, Args)]
struct Create {
    /// The name of its holder, for example "billing": up to 64 letters, digits, and any of "._-". Several tokens may have
    /// one name
    name: String,
    /// A grant, as next:orders, next:order* or read:*; `all` is all of next, read, raise, namespaces and admin on all
    /// namespaces. May be given several times
    #[arg(long = "grant", required = true, value_name = "VERB:NAMESPACES")]
    grants: Vec<Granted>,
    /// When it ends: in so many days, hours or minutes, as 90d, 12h or 30m, by this machine's clock [default: it does not end]
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<Duration>,
    /// Write the token to this file, which its owner alone can read. If the file is there, the token in it is taken, and
    /// nothing is overwritten: so the command can be repeated if its answer is lost
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// `ratchet grant`.
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// The principal: anonymous, which is everybody, or the URI of a client's certificate, as ratchet://CLUSTER/client/NAME
    principal: String,
    /// All that may be done from now on, as next:orders, next:order* or read:*; `all` is all of next, read, raise, namespaces
    /// and admin on all namespaces. To grant nothing, give --nothing
    #[arg(value_name = "GRANT", required_unless_present = "nothing")]
    grants: Vec<Granted>,
    /// Only callers of these addresses, as 10.1.0.0/16; of anonymous alone
    #[arg(long, value_name = "RANGE")]
    addresses: Option<String>,
    /// Nothing may be done from now on
    #[arg(long, conflicts_with = "grants")]
    nothing: bool,
}

/// `ratchet quota`.
#[derive(Debug, Args)]
pub struct QuotaArgs {
    /// The principal: the name of a token, the URI of a client's certificate, or anonymous, of whom each address has its own
    /// quotas
    principal: String,
    /// All limits from now on, as order*:calls=100,numbers=10000,burnt=1000000: how many calls a second each node takes, how
    /// many numbers a second may be asked for, and how many may be burnt in a day by calls that failed. To limit nothing, give
    /// --none
    #[arg(value_name = "NAMESPACES:LIMITS", required_unless_present = "none")]
    quotas: Vec<Limited>,
    /// Only the token with this id, of several that have the name
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Only callers of these addresses, as 10.1.0.0/16; of anonymous alone
    #[arg(long, value_name = "RANGE")]
    addresses: Option<String>,
    /// Nothing is limited from now on
    #[arg(long, conflicts_with = "quotas")]
    none: bool,
}

impl Ask for QuotaArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let QuotaArgs { principal, quotas, id, addresses, none: _ } = self;
        let quotas = quotas.into_iter().map(|Limited(quota)| quota).collect();
        let request = v1::SetQuotasRequest { principal, id, addresses, quotas };
        let set = connection.client()?.set_quotas(request).await?;
        let line = |one: &v1::Principal| {
            format!("quotas of {}: {}", who(one), written_quotas(&one.quotas))
        };
        let text: Vec<_> = set.principals.iter().map(line).collect();
        output::result(connection.json, &set, &text.join("\n"))
    }
}

impl Ask for TokenArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let (client, json) = (connection.client()?, connection.json);
        match self.command {
            AccessCommand::Create(create) => create.run(&client, json).await,
            AccessCommand::List => {
                let list = client.list_principals().await?;
                let table = to_table(&list.principals, BootClock.wall_ms());
                output::result(json, &list, &table)
            }
            AccessCommand::Revoke(Flags(asked)) => {
                let v1::RevokeTokenRequest { name, id } = asked;
                let revoked = client.revoke_token(name.clone(), id).await?;
                output::result(json, &revoked, &format!("revoked token {name} ({})", revoked.id))
            }
        }
    }
}

impl Ask for GrantArgs {
    async fn run(self, connection: &Connection) -> Result<(), CommandError> {
        let GrantArgs { principal, grants, addresses, nothing: _ } = self;
        let grants = together(grants);
        let request = v1::SetGrantsRequest { principal, addresses, grants };
        let set = connection.client()?.set_grants(request).await?;
        warn_of_missing(&set);
        let text = format!("{} may do {}", who(&set), shown(&set.grants));
        output::result(connection.json, &set, &text)
    }
}

/// The token that was created. Its text is in it unless that is in a file.
#[derive(Serialize)]
struct Created<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    principal: &'a v1::Principal,
}

impl Create {
    async fn run(self, client: &Client, json: bool) -> Result<(), CommandError> {
        let Some(path) = &self.file else {
            return self.print(client, json).await;
        };
        let (token, is_new) = SecretToken::of_file("--file", path)?;
        let created = self.ask(client, &token, !is_new).await;
        let principal = created.map_err(|error| SecretToken::refused(path, error))?;
        warn_of_missing(&principal);
        let path = path.display().to_string();
        let created = Created { token: None, file: Some(&path), principal: &principal };
        let table = to_table(slice::from_ref(&principal), BootClock.wall_ms());
        output::result(json, &created, &format!("{table}\nthe token is in {path}"))
    }

    /// Creates it, and prints the token alone.
    async fn print(&self, client: &Client, json: bool) -> Result<(), CommandError> {
        let token = SecretToken::draw()?;
        let unseen = format!(
            "; nobody has seen the token: if ratchet token list shows it, revoke it with ratchet token revoke {} --id {}",
            self.name,
            token.id()
        );
        let principal = self.ask(client, &token, false).await.map_err(|error| match error {
            Error::OutcomeUnknown { .. } => CommandError::from(error).and(&unseen),
            error => error.into(),
        })?;
        warn_of_missing(&principal);
        let created = Created { token: Some(token.text()), file: None, principal: &principal };
        output::result(json, &created, token.text()).map_err(|error| error.and(&unseen))
    }

    /// Has the cluster create it. If the token is not new, an earlier run may have had it created already.
    async fn ask(
        &self, client: &Client, token: &SecretToken, may_be_there: bool,
    ) -> Result<v1::Principal, Error> {
        let ends = |lifetime| BootClock.wall_ms().saturating_add(whole_ms(lifetime));
        let request = v1::CreateTokenRequest {
            name: self.name.clone(),
            sha256: token.sha256(),
            grants: together(self.grants.clone()),
            expires_ms: self.expires.map(ends),
        };
        let refused = match client.create_token(request.clone()).await {
            Err(error) if may_be_there && error.code() == Some(Code::AlreadyExists) => error,
            created => return created,
        };
        let there = client.list_principals().await?.principals;
        let id = token.id();
        let same = |one: &v1::Principal| one.id.as_ref() == Some(&id) && is_as_asked(one, &request);
        there.into_iter().find(same).ok_or(refused)
    }
}

/// Whether a token that is there is the one that is asked for: it differs in nothing but an end that was asked for a while ago.
fn is_as_asked(there: &v1::Principal, asked: &v1::CreateTokenRequest) -> bool {
    let ends_so = match (there.expires_ms, asked.expires_ms) {
        (None, None) => true,
        (Some(there), Some(asked)) => {
            (there..=there.saturating_add(REPEATED_WITHIN_MS)).contains(&asked)
        }
        (None, Some(_)) | (Some(_), None) => false,
    };
    ends_so && there.name == asked.name && are_alike(&there.grants, &asked.grants)
}

/// A grant may name a namespace before it exists; or the name is misspelt.
fn warn_of_missing(principal: &v1::Principal) {
    if !principal.missing_namespaces.is_empty() {
        let missing = principal.missing_namespaces.join(", ");
        output::warn(&format!("granted on what does not exist now: {missing}"));
    }
}

#[cfg(test)]
mod tests {
    use clap::{Parser, error::ErrorKind};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line<C: Args> {
        #[command(flatten)]
        command: C,
    }

    fn parsed<C: Args>(words: &str) -> Result<C, clap::Error> {
        let line = Line::try_parse_from(["ratchet"].into_iter().chain(words.split(' ')));
        line.map(|line| line.command)
    }

    fn grants(words: &str) -> Vec<v1::Grant> {
        together(words.split(' ').map(|word| word.parse().expect(word)).collect())
    }

    #[test]
    fn a_token_is_granted_something_and_a_principal_is_granted_nothing_only_in_so_many_words() {
        let AccessCommand::Create(create) =
            parsed::<TokenArgs>("create a --grant next:a* --grant all --expires 90d")
                .unwrap()
                .command
        else {
            panic!("create");
        };
        assert_eq!(create.grants.len(), 2);
        assert_eq!(create.expires, Some(Duration::from_secs(90 * 86_400)));
        let missing = parsed::<TokenArgs>("create a").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::MissingRequiredArgument);
        let wrong = parsed::<TokenArgs>("create a --grant nxt:a").unwrap_err().to_string();
        assert!(wrong.contains("next, read, raise, namespaces, admin"), "{wrong}");
        let AccessCommand::Revoke(Flags(revoke)) =
            parsed::<TokenArgs>("revoke a --id b").unwrap().command
        else {
            panic!("revoke");
        };
        assert_eq!((&*revoke.name, revoke.id.as_deref()), ("a", Some("b")));

        let grant = parsed::<GrantArgs>("anonymous next:a read:* --addresses 10.1.0.0/16").unwrap();
        assert_eq!(together(grant.grants), grants("next:a read:*"));
        assert!(parsed::<GrantArgs>("anonymous --nothing").unwrap().grants.is_empty());
        let missing = parsed::<GrantArgs>("anonymous").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::MissingRequiredArgument);
        let both = parsed::<GrantArgs>("anonymous all --nothing").unwrap_err();
        assert_eq!(both.kind(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn a_token_that_an_earlier_run_had_created_is_known_by_all_but_a_slightly_earlier_end() {
        let asked = v1::CreateTokenRequest {
            name: "billing".to_owned(),
            grants: grants("next:a read:*"),
            expires_ms: Some(10_000_000),
            ..v1::CreateTokenRequest::default()
        };
        let there = v1::Principal {
            name: "billing".to_owned(),
            grants: grants("read:* next:a"),
            expires_ms: Some(9_990_000),
            ..v1::Principal::default()
        };
        assert!(is_as_asked(&there, &asked));
        for other in [
            v1::Principal { name: "other".to_owned(), ..there.clone() },
            v1::Principal { grants: grants("next:a"), ..there.clone() },
            v1::Principal { expires_ms: None, ..there.clone() },
            v1::Principal { expires_ms: Some(10_000_001), ..there.clone() },
            v1::Principal { expires_ms: Some(10_000_000 - REPEATED_WITHIN_MS - 1), ..there },
        ] {
            assert!(!is_as_asked(&other, &asked), "{other:?}");
        }
    }
}
