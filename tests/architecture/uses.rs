//! The files of a package that each file uses, and the file that defines the item of a path.
//!
//! A name that a `mod.rs` re-exports belongs to the file that defines it. Unit tests may use the file that they test. A call of
//! a method names no file, so that it is not seen here (`rooms` sees the calls of one type).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    files::File,
    rust::{Named, defined_types, inherent_impls, paths, tokens, without_tests},
};

type Module<'a> = Vec<&'a str>;

pub struct Source<'a> {
    pub path: &'a str,
    module: Module<'a>,
    named: Vec<Named<'a>>,
    /// The names elsewhere than in `pub use` and `mod`.
    names: BTreeSet<&'a str>,
    /// The types that it defines.
    types: BTreeSet<&'a str>,
    /// The types for which it has an `impl` that is no trait's, as they are named there.
    pub inherent_impls: Vec<Vec<&'a str>>,
}

impl Source<'_> {
    fn new(file: &File) -> Source<'_> {
        let (_, inside) = file.path.split_once("src/").expect("a file in src");
        let inside = inside.strip_suffix(".rs").expect("a Rust file");
        let mut module: Module = inside.split('/').collect();
        if let ["lib" | "main"] | [.., "mod"] = module[..] {
            module.pop();
        }
        let tokens = without_tests(&tokens(&file.text));
        let (named, types) = (paths(&tokens), defined_types(&tokens));
        let inherent_impls = inherent_impls(&tokens);
        Source { path: &file.path, module, names: names(&tokens), named, types, inherent_impls }
    }

    /// Whether it imports all that some module has, without naming it.
    fn imports_all(&self) -> bool {
        self.named.iter().any(|named| named.known_as == Some("*") && named.inside.is_empty())
    }
}

/// The words of a file, but for the words in `pub use` and after `mod` and `.`.
fn names<'a>(tokens: &[&'a str]) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let mut in_re_export = false;
    let mut last = [""; 2];
    for token in tokens {
        let before = last[1];
        match *token {
            "use" if before == "pub" || (before == ")" && last[0] != "(") => in_re_export = true,
            ";" => in_re_export = false,
            _ if in_re_export || ["mod", "."].contains(&before) => {}
            token => drop(names.insert(token)),
        }
        last = [before, token];
    }
    names
}

/// The files of one package.
pub struct Package<'a> {
    library: &'a str,
    pub sources: Vec<Source<'a>>,
    modules: BTreeMap<Module<'a>, usize>,
}

impl<'a> Package<'a> {
    /// The package of these `files`, whose library has this name.
    pub fn new(files: &'a [File], library: &'a str) -> Package<'a> {
        let files = files.iter().filter(|file| !file.is_test());
        let sources: Vec<Source> = files.map(Source::new).collect();
        let mut modules = BTreeMap::new();
        for (at, source) in sources.iter().enumerate() {
            // lib.rs comes before main.rs, and is the root of both.
            modules.entry(source.module.clone()).or_insert(at);
        }
        Package { library, sources, modules }
    }

    /// The file that defines the item named `segments` in the module `at`; none if it is not of this package.
    fn defines(&self, at: &[&'a str], segments: &[&'a str], steps: usize) -> Option<usize> {
        let mut at = at.to_vec();
        let mut rest = segments;
        match *rest.first()? {
            "crate" => at.clear(),
            first if first == self.library => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            first => {
                let child: Module = [&at[..], &[first]].concat();
                self.modules.get(&child)?;
                at = child;
            }
        }
        rest = &rest[1..];
        while let Some((next, after)) = rest.split_first() {
            let child: Module = [&at[..], &[*next]].concat();
            if *next == "super" {
                at.pop();
            } else if self.modules.contains_key(&child) {
                at = child;
            } else {
                break;
            }
            rest = after;
        }
        let file = self.file_of(&at)?;
        let Some(name) = rest.first().filter(|name| **name != "*") else {
            return Some(file);
        };
        let source = &self.sources[file];
        let imported = source
            .named
            .iter()
            .find(|named| named.known_as == Some(name) && named.inside.is_empty());
        match imported {
            Some(imported) if steps > 0 => {
                self.defines(&source.module, &imported.segments, steps - 1)
            }
            Some(_) => None,
            None => Some(file),
        }
    }

    /// The file that defines the type which `source` names so; `None` if no file of the package is known to.
    pub fn file_that_defines(&self, source: &Source<'a>, type_name: &[&'a str]) -> Option<&'a str> {
        let (first, rest) = type_name.split_first()?;
        let mut imports = source.named.iter().filter(|named| named.inside.is_empty());
        let file = match imports.find(|named| named.known_as == Some(first)) {
            Some(import) => {
                self.defines(&source.module, &[&import.segments[..], rest].concat(), 8)?
            }
            None if rest.is_empty() => {
                // A type that is imported by no name is defined here, if need be by a macro: nobody else's type has methods
                // here.
                let is_own = source.types.contains(first) || !source.imports_all();
                return is_own.then_some(source.path);
            }
            None => self.defines(&source.module, type_name, 8)?,
        };
        Some(self.sources[file].path)
    }

    /// The file that a module is in: its own, or that of the module around it.
    fn file_of(&self, module: &[&'a str]) -> Option<usize> {
        (0..=module.len()).rev().find_map(|length| self.modules.get(&module[..length])).copied()
    }

    /// Which file uses which others.
    pub fn uses(&self) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
        let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for source in &self.sources {
            for named in &source.named {
                let only_re_exports = named.re_exports
                    && named.known_as.is_none_or(|name| !source.names.contains(name));
                let at: Module = [&source.module[..], &named.inside[..]].concat();
                let used = self.defines(&at, &named.segments, 8);
                if let Some(used) = used.map(|used| self.sources[used].path)
                    && used != source.path
                    && !only_re_exports
                {
                    uses.entry(source.path).or_default().insert(used);
                }
            }
        }
        uses
    }
}
