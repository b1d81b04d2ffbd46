//! Macros that declare metrics and labels: each metric is one doc comment and one line of code.
//!
//! Invariant: a metric's name, unit and help text come from its declaration alone.

use prometheus_client::registry::{Metric, Registry, Unit};

/// Declares a struct of metrics with a registry. The field's name is the metric's name. If it ends in
/// `_seconds` or `_bytes`, that is the unit. In the output the name of a counter ends in `_total`. The
/// field's doc comment is the help text. A metric begins as its type's default, or with the value that is given; that
/// may use the metrics above it. With a struct of metrics that each set has, these are shown, too.
macro_rules! metrics {
    (@begin $kind:ty) => {
        <$kind>::default()
    };
    (@begin $kind:ty = $value:expr) => {
        $value
    };
    (
        $(#[doc = $about:literal])+
        $metrics:ident in $prefix:literal $(, with $sets:ident of $of_set:ident)? {
            $($(#[doc = $help:literal])+ $name:ident: $kind:ty $(= $value:expr)?,)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug)]
        pub struct $metrics {
            registry: prometheus_client::registry::Registry,
            $(sets: $sets<$of_set>,)?
            $($(#[doc = $help])+ pub $name: $kind,)*
        }

        impl Default for $metrics {
            fn default() -> Self {
                let mut registry = prometheus_client::registry::Registry::with_prefix($prefix);
                $(
                    let $name: $kind = metrics!(@begin $kind $(= $value)?);
                    let help = concat!($($help),+);
                    $crate::metrics::declare::register(
                        &mut registry,
                        stringify!($name),
                        help,
                        $name.clone(),
                    );
                )*
                $metrics {
                    $(sets: $of_set::register(&mut registry),)?
                    registry,
                    $($name,)*
                }
            }
        }
    };
}

/// Declares an enum whose variants are the values of a label.
macro_rules! label {
    (
        $(#[doc = $about:literal])+
        $label:ident as $name:literal {
            $($(#[doc = $doc:literal])+ $value:ident,)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(non_camel_case_types)]
        pub enum $label {
            $($(#[doc = $doc])+ $value,)*
        }

        impl $label {
            /// All values.
            pub const ALL: &'static [$label] = &[$($label::$value),*];
        }

        impl $crate::metrics::Label for $label {
            const NAME: &'static str = $name;
            const VALUES: &'static [&'static str] = &[$(stringify!($value)),*];

            fn place(self) -> usize {
                self as usize
            }
        }
    };
}

/// Registers a metric; the end of its name tells its unit.
pub fn register(registry: &mut Registry, name: &str, help: &str, metric: impl Metric) {
    // The registry adds a full stop.
    let help = help.trim().trim_end_matches('.');
    let units = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];
    for (end, unit) in units {
        if let Some(name) = name.strip_suffix(end) {
            return registry.register_with_unit(name, help, unit, metric);
        }
    }
    registry.register(name, help, metric);
}
