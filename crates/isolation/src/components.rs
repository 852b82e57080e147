//! Strongly connected components, by Tarjan's algorithm without recursion.

use crate::graph::Edge;

/// Returns the components of more than one node.
pub(crate) fn components(edges: &[Vec<(usize, Edge)>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut index = vec![UNSEEN; edges.len()];
    let mut low = vec![0; edges.len()];
    let mut on_stack = vec![false; edges.len()];
    let (mut stack, mut found, mut next) = (Vec::new(), Vec::new(), 0);
    // The nodes on the current path, each with the number of its edges that were followed.
    let mut way: Vec<(usize, usize)> = Vec::new();
    for root in 0..edges.len() {
        if index[root] != UNSEEN {
            continue;
        }
        way.push((root, 0));
        while let Some((node, followed)) = way.last_mut() {
            let node = *node;
            if *followed == 0 && index[node] == UNSEEN {
                (index[node], low[node]) = (next, next);
                next += 1;
                stack.push(node);
                on_stack[node] = true;
            }
            if let Some((to, _)) = edges[node].get(*followed) {
                *followed += 1;
                if index[*to] == UNSEEN {
                    way.push((*to, 0));
                } else if on_stack[*to] {
                    low[node] = low[node].min(index[*to]);
                }
                continue;
            }
            way.pop();
            if let Some((before, _)) = way.last() {
                low[*before] = low[*before].min(low[node]);
            }
            if low[node] == index[node] {
                let from = stack.iter().rposition(|one| *one == node).unwrap_or(0);
                let component = stack.split_off(from);
                component.iter().for_each(|one| on_stack[*one] = false);
                if component.len() > 1 {
                    found.push(component);
                }
            }
        }
    }
    found
}
