"""From a run's decision to production and back: releases, targets, the steps between them. See docs/promotion.md."""
