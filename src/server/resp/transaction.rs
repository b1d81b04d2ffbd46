//! A transaction: the commands between MULTI and EXEC. They are put off, and carried out at EXEC as a pipeline with one
//! reply. Other connections' commands may come between them, and one that fails ends none of the others.
//!
//! Invariant: the commands that are put off are bounded, and all but a few bytes of them are counted in the memory of requests.

use std::sync::Arc;

use super::{
    reader::{COMMAND_BYTES_MAX, Commands, CopiedCommands, RedisCommand},
    refused::Refused,
};
use crate::{
    node::{RequestMemory, Reservation},
    proto::refusal,
};

/// The most bytes of a transaction.
const BYTES_MAX: usize = COMMAND_BYTES_MAX;

/// The commands since MULTI.
#[derive(Debug, Default)]
pub struct Transaction {
    commands: CopiedCommands,
    reservation: Option<Reservation>,
    /// True if a command was refused: nothing is carried out.
    has_failed: bool,
}

/// The commands that EXEC carries out.
#[derive(Debug)]
pub struct PutOff {
    /// The commands.
    pub commands: Commands,
    _reservation: Option<Reservation>,
}

impl Transaction {
    /// Puts a command off.
    ///
    /// # Errors
    /// If the transaction has too many bytes, or no memory is left for them. Nothing is carried out then.
    pub fn put_off(
        &mut self, command: RedisCommand<'_>, memory: &Arc<RequestMemory>,
    ) -> Result<(), Refused> {
        if self.has_failed {
            // Nothing is carried out, so the command need not be kept.
            return Ok(());
        }
        self.commands.push(command);
        let held = self.commands.held();
        self.reservation = None;
        let reserved = match held {
            ..=BYTES_MAX => memory.reserve_if_many(held).map_err(Refused::from),
            _ => Err(Refused::invalid(format!(
                "the transaction has more than {BYTES_MAX} bytes; send its commands in several"
            ))),
        };
        self.reservation = reserved.inspect_err(|_| self.fail())?;
        Ok(())
    }

    /// Notes that a command was refused.
    pub fn fail(&mut self) {
        *self = Transaction { has_failed: true, ..Transaction::default() };
    }

    /// The commands, to be carried out.
    ///
    /// # Errors
    /// If one of them was refused.
    pub fn finish(self) -> Result<PutOff, Refused> {
        match self.has_failed {
            true => Err(aborted("of previous errors; nothing was carried out")),
            false => {
                Ok(PutOff { commands: self.commands.finish(), _reservation: self.reservation })
            }
        }
    }
}

/// EXEC is refused, and none of the commands was carried out.
pub fn aborted(why: &str) -> Refused {
    Refused {
        word: "EXECABORT",
        ..Refused::from(refusal!(WrongState, "Transaction discarded because {why}"))
    }
}
