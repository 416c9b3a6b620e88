"""The statements of Sommer, Meiser, Mohammadi (2019), "Privacy Loss Classes", for the table ``claims``."""

from __future__ import annotations

from wpriv.tables import _claims_plc_classes, _claims_plc_losses

STATEMENTS = (*_claims_plc_losses.STATEMENTS, *_claims_plc_classes.STATEMENTS)
