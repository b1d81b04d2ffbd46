//! The common parts of the models: a search, and the transcript of the shortest way to break the promise.

use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// The property that must hold in every state.
pub const PROMISE: &str = "the promise is kept";

/// A model that can be searched, and whose actions can be put into words.
pub trait Told: Sized + Send + Sync + 'static
where
    Self: Model<State: Clone + PartialEq + Hash + Send + Sync + 'static>,
    Self: Model<Action: Clone + PartialEq>,
{
    /// One line of a transcript: the effect of the action on `before`.
    fn tell(&self, before: &Self::State, act: Self::Action) -> String;
}

/// Searches all states, breadth first, until there is `enough` to tell.
pub fn search<M: Told>(model: M, enough: HasDiscoveries) -> impl Checker<M> {
    model.checker().finish_when(enough).spawn_bfs().join()
}

/// Searches, and prints how many states there are and the shortest way to break the promise, if there is one.
pub fn search_and_tell<M: Told>(name: &str, model: M, enough: HasDiscoveries) -> impl Checker<M> {
    let checker = search(model, enough);
    println!("{name}: {} states", checker.unique_state_count());
    let way = checker.discovery(PROMISE).into_iter();
    for (before, act) in way.flat_map(|path| path.into_vec()) {
        if let Some(act) = act {
            println!("    {}", checker.model().tell(&before, act));
        }
    }
    checker
}

/// There is a way to break the promise.
pub fn is_broken<M: Told>(checker: &impl Checker<M>) -> bool {
    checker.discovery(PROMISE).is_some()
}

/// A test for each search: its name, its verdict, and the rules.
macro_rules! searches {
    ($($(#[$attribute:meta])* $name:ident: $verdict:ident($rules:expr);)*) => {
        $(#[test] $(#[$attribute])* fn $name() { $verdict(stringify!($name), $rules); })*
    };
}
pub(crate) use searches;
