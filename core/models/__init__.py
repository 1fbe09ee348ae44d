"""The models of core's HTTP interface, all immutable.

`inputs` are the bodies of requests, `responses` what core returns and stores, `parameters` what responders declare, and
`base` what all share; others import each from here.
"""

from core.models.base import *
from core.models.inputs import *
from core.models.parameters import *
from core.models.responses import *
