//! Code that waits for several things looks at them in the order in which they are written.
//!
//! Without `biased`, tokio draws the order from a generator that no seed sets, and a simulated run cannot be repeated.

use crate::{
    files::{File, assert_none, files},
    rust::tokens,
};

fn violations(file: &File) -> Vec<String> {
    let tokens = tokens(&file.text);
    let drawn = tokens.windows(5).filter(
        |seen| matches!(seen, ["select", "!", "{", first, end] if [*first, *end] != ["biased", ";"]),
    );
    drawn.map(|seen| format!("{}: select! {{ {} ..", file.path, seen[3])).collect()
}

#[test]
fn every_select_is_biased() {
    let all = ["src", "client/src"].into_iter().flat_map(|dir| files(dir, "rs"));
    let found: Vec<String> = all.flat_map(|file| violations(&file)).collect();
    assert_none("begin select! with biased;", &found);
}

#[test]
fn a_select_that_draws_its_order_is_a_violation() {
    let text = "
        async fn f() {
            tokio::select! { biased; () = a => {} () = b => {} }
            tokio::select! { () = a => {} () = b => {} }
        }
    ";
    let found = violations(&File::new("src/a.rs", text));
    assert_eq!(found, ["src/a.rs: select! { ( .."]);
}
