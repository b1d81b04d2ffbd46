//! By how much a recovery raises the ceilings of each namespace.

use std::collections::{BTreeMap, BTreeSet};

use super::survivor::Survivor;
use crate::{
    sequence::{NamespaceConfig, NamespaceId},
    storage::{error::StoreError, recovery_record::RaisedNamespace, table::Namespaces},
};

/// By how much ceilings are raised, in steps: of each namespace the greatest that a section may have.
#[derive(Debug, Clone)]
pub struct Margin {
    /// In namespaces that are not named.
    pub default_steps: u64,
    /// In the namespaces of these names.
    pub steps_by_namespace: BTreeMap<String, u64>,
}

/// By how much each namespace is raised.
pub struct RaisePlan {
    /// The namespaces as they will be.
    pub namespaces: Namespaces,
    /// What is told of each, without counts.
    pub told: BTreeMap<NamespaceId, RaisedNamespace>,
}

impl Margin {
    /// Raises the start of each namespace, and decides by how much its ceilings are raised.
    pub fn plan(&self, survivor: &Survivor<'_>) -> Result<RaisePlan, StoreError> {
        let mut plan = RaisePlan {
            namespaces: survivor.namespaces.clone(),
            told: BTreeMap::new(),
        };
        // A leader that misses one of them would create it, and begin at its first number.
        for config in NamespaceConfig::fresh_cluster() {
            if survivor.namespaces.by_name(&config.name).is_none() {
                return Err(StoreError::Refused(format!(
                    "the copy in {} ends before namespace {:?} was created, with which every cluster \
                     begins: nothing can be recovered from it; take another node's",
                    survivor.db.dir().display(),
                    config.name
                )));
            }
        }
        let names: BTreeSet<&str> = survivor
            .namespaces
            .iter()
            .map(|n| n.config.name.as_str())
            .collect();
        if let Some(unknown) = self
            .steps_by_namespace
            .keys()
            .find(|name| !names.contains(name.as_str()))
        {
            return Err(StoreError::Refused(format!(
                "there is no namespace {unknown:?} in {}; it holds {}",
                survivor.db.dir().display(),
                Vec::from_iter(names).join(", ")
            )));
        }
        for mut namespace in Vec::from_iter(survivor.namespaces.iter().cloned()) {
            let config = &mut namespace.config;
            let margin_steps = self.steps_by_namespace.get(&config.name).copied();
            let margin_steps = margin_steps.unwrap_or(self.default_steps);
            let step = survivor.greatest_steps.get(&namespace.id).copied();
            let step = step.unwrap_or_else(|| config.step_bounds().1);
            let step = step.saturating_mul(config.increment);
            let raised_by = margin_steps.checked_mul(step);
            let room = config.max.saturating_sub(config.start);
            let Some(raised_by) = raised_by.filter(|by| *by <= room) else {
                return Err(StoreError::Refused(format!(
                    "a margin of {margin_steps} steps of {step} ends above the greatest number of \
                     namespace {0:?}, {1}; state one for it, of at most {2}: --margin {0}={2}",
                    config.name,
                    config.max,
                    room / step
                )));
            };
            config.start += raised_by;
            let raised = RaisedNamespace {
                name: config.name.clone(),
                margin_steps,
                raised_by,
                sections: 0,
                exhausted: 0,
                start: config.start,
            };
            plan.told.insert(namespace.id, raised);
            plan.namespaces.put(namespace);
        }
        Ok(plan)
    }
}
