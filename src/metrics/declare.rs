//! How metrics are declared: one doc line and one line of code each.
//!
//! Invariant: a metric's name, unit and help come from its declaration and from nowhere else.

use prometheus_client::registry::{Metric, Registry, Unit};

/// Declares a struct of metrics with a registry. A field's name is the metric's: `_seconds` and
/// `_bytes` at its end are its unit, a counter's name in the output ends in `_total`. Its doc comment
/// is the metric's help.
macro_rules! metrics {
    (
        $(#[doc = $about:literal])+
        $metrics:ident in $prefix:literal {
            $($(#[doc = $help:literal])+ $name:ident: $kind:ty,)*
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug)]
        pub struct $metrics {
            registry: prometheus_client::registry::Registry,
            $($(#[doc = $help])+ pub $name: $kind,)*
        }

        impl Default for $metrics {
            fn default() -> Self {
                let mut registry = prometheus_client::registry::Registry::with_prefix($prefix);
                $(
                    let $name = <$kind>::default();
                    let help = concat!($($help),+);
                    $crate::metrics::declare::register(
                        &mut registry,
                        stringify!($name),
                        help,
                        $name.clone(),
                    );
                )*
                $metrics { registry, $($name,)* }
            }
        }
    };
}

/// Declares an enum whose variants are all the values of a label.
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

        impl $crate::metrics::Label for $label {
            const NAME: &'static str = $name;
            const VALUES: &'static [&'static str] = &[$(stringify!($value)),*];

            fn place(self) -> usize {
                self as usize
            }
        }
    };
}

/// Registers a metric whose unit its name tells.
pub fn register(registry: &mut Registry, name: &str, help: &str, metric: impl Metric) {
    // The registry ends it with a full stop.
    let help = help.trim().trim_end_matches('.');
    let units = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];
    for (end, unit) in units {
        if let Some(name) = name.strip_suffix(end) {
            return registry.register_with_unit(name, help, unit, metric);
        }
    }
    registry.register(name, help, metric);
}
