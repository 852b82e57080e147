//! Findings of the papers: what a test of each needs, and its judge.

use crate::interface::USER_SPACE;
use crate::need::{Here, Need};
use crate::verdict::Evidence;
use crate::view::View;

/// A finding of a paper.
#[derive(Clone, Copy, Debug)]
pub struct Finding {
    /// The name of the finding in this project.
    pub name: &'static str,
    /// The paper and figure.
    pub source: &'static str,
    /// The experiment that shows it.
    pub experiment: &'static str,
    /// The requirements of the test on the machine and the devices.
    pub needs: &'static [Need],
    /// The claim of the paper.
    pub claim: &'static str,
    /// The test made here, with the threshold.
    pub test: &'static str,
    pub(crate) judge: fn(&View<'_>) -> Judged,
}

/// The evidence for or against a finding, or the reason why the study could not test it.
pub(crate) type Judged = Result<Vec<Evidence>, String>;

impl Finding {
    /// Whether the points of the finding come here from drives made of software, so that its
    /// verdict is on a model.
    #[must_use]
    pub fn is_of_model(&self, here: &Here<'_>) -> bool {
        let store = self.needs.contains(&Need::Stores(USER_SPACE));
        self.needs.contains(&Need::SoftDrive) || store && here.means.user_space_store_is_model()
    }

    /// Returns what the machine lacks for the test, each as a sentence; empty if nothing.
    #[must_use]
    pub fn lacks(&self, here: &Here<'_>) -> Vec<String> {
        let mut all: Vec<String> =
            self.needs.iter().filter_map(|need| need.lacking(here)).collect();
        // Several needs may lack the same thing.
        let mut known = std::collections::HashSet::new();
        all.retain(|one| known.insert(one.clone()));
        all
    }

    /// Describes the experiment, the test and its needs, on any machine.
    #[must_use]
    pub fn words(&self) -> String {
        let needs: Vec<String> = self.needs.iter().map(|need| need.words()).collect();
        let needs = match needs.is_empty() {
            true => String::new(),
            false => format!(" (needs {})", needs.join(", ")),
        };
        format!("{}: {}{needs}", self.experiment, self.test)
    }
}
