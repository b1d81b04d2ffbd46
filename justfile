# What there is to do in a checkout. `just` lists it. Each recipe calls one script or one cargo command, which also run by
# themselves: `just` (https://just.systems) is needed by nothing but `.ci/run`, which installs it.

set shell := ["bash", "-euo", "pipefail", "-c"]
cargo := ". cluster/env && cargo"

[private]
default:
    @just --list --unsorted

# Build the node, start three of them, and take a number from each
up *ARGS:
    cluster/local up {{ ARGS }}

# End the nodes that `just up` has started
down:
    cluster/local down

# Run every test, or those whose paths contain ARGS
test *ARGS:
    cluster/test {{ ARGS }}

# Run all that must hold before a change lands (half an hour or more)
ci:
    .ci/run

# Format the sources
format:
    cargo fmt --all

# Check the format of the sources
format-check:
    cargo fmt --all --check

# Check the sources with clippy
lint:
    {{ cargo }} clippy --locked --workspace --all-targets --features ratchet-fuzz/targets,ratchet/counting -- -D warnings

# Make the documentation of the code
doc:
    . cluster/env && RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

# Cargo takes a version of a package for one that never changes, and would compile the client with the ids of an earlier run.
#
# Compile what cargo users get of us: what the packages of the client hold
package:
    rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/{src,cache}/-*/ratchet-*
    . cluster/env && rm -rf "$CARGO_TARGET_DIR"/debug/.fingerprint/ratchet-{ids,client}-*
    {{ cargo }} package --locked --allow-dirty -p ratchet-ids -p ratchet-client

# Check licences, sources and forbidden crates of all dependencies (deny.toml)
deny *CHECKS="bans licenses sources":
    cargo deny --locked check {{ CHECKS }}

# Prove the promise: planted bugs are found, and every fault is withstood (some fifteen minutes)
prove *PART:
    jepsen/ci {{ PART }}

# Play what Kubernetes does to the pods of its manifest (some five minutes)
kubernetes *ARGS:
    jepsen/kubernetes {{ ARGS }}

# Send what a fuzzer makes to all that parses
fuzz *ARGS:
    fuzz/run {{ ARGS }}

# Count the instructions of a call, and compare them with bench/instructions.txt
instructions *ARGS:
    bench/instructions {{ ARGS }}

# Make what is installed: the Debian package, the archive and the image (half an hour the first time)
dist:
    dist/build

# Print the notes of a release, from CHANGELOG.md
notes VERSION:
    dist/notes {{ VERSION }}
